/** `viv events`: prints the events of the organisation's sessions. */
import type { EventFilter } from "@vivarium/sdk";
import { InvalidArgumentError } from "commander";
import { renderEvent } from "../print/event.ts";
import { untilCtrlC, withInterrupt } from "../service/interrupt.ts";
import { findSession } from "../sessions/find-session.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

interface EventsOptions {
  follow?: boolean;
  types?: string[];
  session?: string;
  after?: string;
}

const LARGEST_PAGE = 200;

export function eventsCommand(): Verb {
  return clientVerb("events", [
    "viv events",
    "viv events --follow --types 'session.*,egress.denied'",
    "viv events -f --json --after evt_4x7k2m9q0a1b2c3d4e5f6 | jq -r .session_id",
  ])
    .summary("print what happened to the organisation's sessions")
    .description(
      `Print the events of the last 7 days, oldest first, one a line. With --follow those from now on instead, until
Ctrl-C; a connection that breaks is made again and goes on where it was.`,
    )
    .option("-f, --follow", "print what comes from now on; with --after, from that event on")
    .option(
      "--types <types>",
      "only these, with commas: session.paused, or session.* for a group",
      parseTypes,
    )
    .option("--session <session>", "only those of one session, by its id, name or the beginning of its id")
    .option("--after <id>", "only what came later than this event")
    .option("--json", "print each event as one line of JSON")
    .does(showEvents);
}

async function showEvents(call: Call<EventsOptions>): Promise<void> {
  const { paint } = call;
  const client = await call.connect();
  const { session, types, after, follow } = call.options;
  const sessionId = session === undefined ? undefined : await findSession(client, session, { orEnded: true });
  const filter: EventFilter = { types, sessionId, after };
  await (follow ? untilCtrlC : withInterrupt)(async (signal) => {
    const shown = follow
      ? client.events.follow(filter, { signal })
      : client.events.list({ ...filter, pageSize: LARGEST_PAGE }, { signal });
    for await (const event of shown) call.print(event, () => renderEvent(event, paint));
  });
}

function parseTypes(text: string): string[] {
  const types = text.split(",").map((type) => type.trim());
  if (types.includes("")) throw new InvalidArgumentError("Expected types such as session.paused,egress.*");
  return types;
}
