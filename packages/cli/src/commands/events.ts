import type { EventFilter } from "@vivarium/sdk";
import { type Command, InvalidArgumentError } from "commander";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { renderEvent } from "../print/event.ts";
import { paintFor } from "../print/paint.ts";
import { untilCtrlC, withInterrupt } from "../service/interrupt.ts";
import { findSession } from "../sessions/find-session.ts";

interface EventsOptions extends ConnectionOptions {
  follow?: boolean;
  types?: string[];
  session?: string;
  after?: string;
}

const LARGEST_PAGE = 200;

export function eventsCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("events", [
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
    .action((options: EventsOptions) => run(showEvents(context, options)));
}

async function showEvents(context: Context, options: EventsOptions): Promise<number> {
  const client = await connect(withOptions(context.config, options));
  const { events } = client;
  const { session: reference } = options;
  const sessionId =
    reference === undefined ? undefined : await findSession(client, reference, { orEnded: true });
  const filter: EventFilter = { types: options.types, sessionId, after: options.after };
  const paint = paintFor(context);
  await (options.follow ? untilCtrlC : withInterrupt)(async (signal) => {
    const shown = options.follow
      ? events.follow(filter, { signal })
      : events.list({ ...filter, pageSize: LARGEST_PAGE }, { signal });
    for await (const event of shown)
      context.terminal.out(options.json ? JSON.stringify(event) : renderEvent(event, paint));
  });
  return EXIT.ok;
}

function parseTypes(text: string): string[] {
  const types = text.split(",").map((type) => type.trim());
  if (types.includes("")) throw new InvalidArgumentError("Expected types such as session.paused,egress.*");
  return types;
}
