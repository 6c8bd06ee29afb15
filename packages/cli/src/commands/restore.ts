import type { Command } from "commander";
import { clientCommand, SESSION_ARGUMENT, type TimedOptions } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { showSession } from "../print/show-session.ts";
import { findSession } from "../sessions/find-session.ts";

export function restoreCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("restore", [
    "viv restore 4x7k2m9q0a1b2c3d4e5f6 before-upgrade",
    "viv restore 4x7k2m9q0a1b2c3d4e5f6 chk_4x7k2m9q0a1b2c3d4e5f6",
  ])
    .summary("take a session back to a checkpoint")
    .description(
      `Take a session back to one of its checkpoints, or to the one that it was started from: memory, processes and
disk become what they were. What happened since is lost, unless a checkpoint has it. Id and settings stay.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .argument("<checkpoint>", "id or name of the checkpoint (viv checkpoint ls SESSION)")
    .option("--timing", "say how long each stage took")
    .option("--json", "print the record as JSON")
    .action((reference: string, checkpoint: string, options: TimedOptions) =>
      run(restoreSession(context, reference, checkpoint, options)),
    );
}

async function restoreSession(
  context: Context,
  reference: string,
  checkpoint: string,
  options: TimedOptions,
): Promise<number> {
  const client = await connect(withOptions(context.config, options));
  const id = await findSession(client, reference);
  showSession(context, await client.sessions.restore(id, checkpoint, { timing: options.timing }), options);
  return EXIT.ok;
}
