/** Query of `GET /v1/events` (docs/spec/events.md). */
import { EVENT_TYPE_FILTER_PATTERN } from "@vivarium/contract/api";
import type { z } from "zod";
import type { Scope } from "../access/principal.ts";
import { PageQuery, queryText } from "../http/query.ts";
import { invalidField } from "../http/validation.ts";
import type { EventFilter } from "./store.ts";

const TYPE_CHARS = 64;
const TYPES = 64;

export const EventQuery = PageQuery.extend({
  session_id: queryText().optional(),
  types: queryText().optional(),
  after: queryText().optional(),
});
export type EventQuery = z.output<typeof EventQuery>;

/** Unknown types are not refused, because a later release may have more types. */
export function filterOf(scope: Scope, { types, session_id: sessionId }: EventQuery): EventFilter {
  return { scope, types: types === undefined ? undefined : parseTypes(types), sessionId };
}

function parseTypes(text: string): { exact: string[]; groups: string[] } {
  const names = text.split(",");
  if (names.length > TYPES) throw invalidField("types", `must name at most ${TYPES} types`);
  for (const name of names) {
    if (name.length > TYPE_CHARS || !EVENT_TYPE_FILTER_PATTERN.test(name))
      throw invalidField(
        "types",
        "must be event types such as session.paused or session.*, with commas",
        name,
      );
  }
  const groups = names.filter((name) => name.endsWith(".*"));
  return {
    exact: names.filter((name) => !name.endsWith(".*")),
    groups: groups.map((name) => name.slice(0, -1)),
  };
}
