/** Query strings, read strictly: a value that is not UTF-8 is refused by its name, never replaced by other text. */
import { text } from "@vivarium/contract/api/wire-types";
import type { FastifyInstance } from "fastify";
import { z } from "zod";
import { invalidField } from "./validation.ts";

/** A boolean parameter. */
export const queryFlag = z
  .enum(["true", "false", "1", "0"])
  .transform((word) => word === "true" || word === "1");

/** A text parameter. One that is given twice is refused. */
export function queryText() {
  return text("must be given once");
}

const WHOLE = "must be a whole number of at least 1";

/** Query of a list in pages: the most entries of a page, and the `next_cursor` of the page before. */
export const PageQuery = z.object({
  limit: queryText()
    .regex(/^[0-9]{1,15}$/, WHOLE)
    .transform(Number)
    .refine((limit) => limit >= 1, WHOLE)
    .optional(),
  cursor: queryText().optional(),
});

/** Holds the name of the first parameter that is not UTF-8. A symbol, so that no caller can send this key. */
const UNREADABLE = Symbol("unreadable");
type Query = Record<string, string | string[]> & { [UNREADABLE]?: string };

/** Never throws, because the router calls it before any check. A parameter given twice is an array. */
export function parseQuery(whole: string): Query {
  const query: Query = Object.create(null);
  for (const pair of whole.split("&")) {
    if (pair === "") continue;
    const end = pair.includes("=") ? pair.indexOf("=") : pair.length;
    const name = decode(pair.slice(0, end));
    const value = decode(pair.slice(end + 1));
    if (name === undefined || value === undefined) query[UNREADABLE] ??= name ?? "query";
    else add(query, name, value);
  }
  return query;
}

/** Refuses queries that are not percent-encoded UTF-8, after the checks of credential and route. */
export function refuseUnreadableQuery(server: FastifyInstance): void {
  server.addHook("preValidation", async (request) => {
    const name = (request.query as Query | undefined)?.[UNREADABLE];
    if (name !== undefined && !request.is404) throw invalidField(name, "must be percent-encoded UTF-8");
  });
}

function add(query: Query, name: string, value: string): void {
  const known = query[name];
  if (known === undefined) query[name] = value;
  else if (Array.isArray(known)) known.push(value);
  else query[name] = [known, value];
}

function decode(part: string): string | undefined {
  try {
    return decodeURIComponent(part.replaceAll("+", " "));
  } catch {
    return undefined;
  }
}
