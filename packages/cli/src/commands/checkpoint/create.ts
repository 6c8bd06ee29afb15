import type { Command } from "commander";
import { clientCommand, SESSION_ARGUMENT, type TimedOptions } from "../../args/shared-options.ts";
import { collectPair } from "../../args/values.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { EXIT } from "../../exit-codes.ts";
import { renderCheckpoint } from "../../print/checkpoint.ts";
import { noteTiming } from "../../print/timing.ts";
import { findSession } from "../../sessions/find-session.ts";

interface CheckpointCreateOptions extends TimedOptions {
  name?: string;
  label?: Record<string, string>;
}

export function checkpointCreateCommand(
  run: (code: Promise<number>) => Promise<void>,
  context: Context,
): Command {
  return clientCommand("create", [
    "viv checkpoint create 4x7k2m9q0a1b2c3d4e5f6",
    "viv checkpoint create --name before-upgrade 4x7k2m9q0a1b2c3d4e5f6",
  ])
    .summary("save a session as it is now")
    .description(
      `Save a session as it is now: memory, processes and disk. A live session runs on, a paused one stays paused.
The checkpoint outlives its session, until it is deleted. Prints its id.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .option("--name <name>", "a name, unique among the session's checkpoints: a-z, 0-9 and hyphens")
    .option("--label <key=value>", "label; repeatable", collectPair)
    .option("--timing", "say how long each stage took")
    .option("--json", "print the checkpoint as JSON")
    .action((reference: string, options: CheckpointCreateOptions) =>
      run(createCheckpoint(context, reference, options)),
    );
}

async function createCheckpoint(
  { config, terminal }: Context,
  reference: string,
  options: CheckpointCreateOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const id = await findSession(client, reference);
  const { name, label, timing } = options;
  const checkpoint = await client.checkpoints.create(id, { name, labels: label }, { timing });
  if (options.json) terminal.out(JSON.stringify(checkpoint));
  else terminal.out(terminal.isInteractive ? renderCheckpoint(checkpoint) : checkpoint.checkpoint_id);
  noteTiming(terminal, options, checkpoint);
  return EXIT.ok;
}
