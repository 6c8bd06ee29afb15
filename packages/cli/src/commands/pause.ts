import type { Command } from "commander";
import { clientCommand, SESSION_ARGUMENT, type TimedOptions } from "../args/shared-options.ts";
import { parseInstant } from "../args/values.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { showSession } from "../print/show-session.ts";
import { findSession } from "../sessions/find-session.ts";

interface PauseOptions extends TimedOptions {
  wakeAt?: Date;
}

export function pauseCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("pause", [
    "viv pause 4x7k2m9q0a1b2c3d4e5f6",
    "viv pause --wake-at 8h 4x7k2m9q0a1b2c3d4e5f6",
    "viv pause --wake-at 2027-03-01T09:30:00Z 4x7k2m9q0a1b2c3d4e5f6",
  ])
    .summary("save a session and stop its machine")
    .description(
      `Save a session with its memory and processes, and stop its machine. The next exec wakes it, as does viv resume.
Pausing a paused session replaces the time of its waking, or clears it.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .option(
      "--wake-at <time>",
      "wake it then: 30m, 12h, 7d from now, or an instant; at most 90 days ahead",
      parseInstant,
    )
    .option("--timing", "say how long each stage took")
    .option("--json", "print the record as JSON")
    .action((reference: string, options: PauseOptions) => run(pauseSession(context, reference, options)));
}

async function pauseSession(context: Context, reference: string, options: PauseOptions): Promise<number> {
  const client = await connect(withOptions(context.config, options));
  const id = await findSession(client, reference);
  const { wakeAt, timing } = options;
  showSession(context, await client.sessions.pause(id, { wakeAt }, { timing }), options);
  return EXIT.ok;
}
