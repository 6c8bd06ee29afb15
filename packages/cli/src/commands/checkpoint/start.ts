import type { Command } from "commander";
import { addSessionOptions, type SessionOptions, toSessionFields } from "../../args/session-options.ts";
import { clientCommand, type TimedOptions } from "../../args/shared-options.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { EXIT } from "../../exit-codes.ts";
import { showSession } from "../../print/show-session.ts";

interface CheckpointStartOptions extends TimedOptions, SessionOptions {}

export function checkpointStartCommand(
  run: (code: Promise<number>) => Promise<void>,
  context: Context,
): Command {
  const command = clientCommand("start", [
    "viv checkpoint start chk_4x7k2m9q0a1b2c3d4e5f6",
    "id=$(viv checkpoint start --name second-try chk_4x7k2m9q0a1b2c3d4e5f6) && viv exec $id -- ls",
  ])
    .summary("start a session from a checkpoint")
    .description(`Start a session of its own from a checkpoint. It is live when this returns. Prints its id.`)
    .argument("<checkpoint>", "id of the checkpoint");
  return addSessionOptions(command)
    .option("--timing", "say how long each stage took")
    .option("--json", "print the record as JSON")
    .action((id: string, options: CheckpointStartOptions) => run(startCheckpoint(context, id, options)));
}

async function startCheckpoint(
  context: Context,
  id: string,
  options: CheckpointStartOptions,
): Promise<number> {
  const client = await connect(withOptions(context.config, options));
  const request = toSessionFields(options);
  showSession(context, await client.checkpoints.start(id, request, { timing: options.timing }), options);
  return EXIT.ok;
}
