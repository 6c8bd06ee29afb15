import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../../args/shared-options.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { EXIT } from "../../exit-codes.ts";
import { renderCheckpoints } from "../../print/checkpoint.ts";
import { paintFor } from "../../print/paint.ts";

export function checkpointLsCommand(
  run: (code: Promise<number>) => Promise<void>,
  context: Context,
): Command {
  return clientCommand("ls", ["viv checkpoint ls", "viv checkpoint ls 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("list checkpoints")
    .description("List checkpoints, newest first, also those of sessions that have ended.")
    .argument("[session]", "only those of this session")
    .option("--json", 'print {"checkpoints": [checkpoint, …]}')
    .action((id: string | undefined, options: ConnectionOptions) =>
      run(listCheckpoints(context, id, options)),
    );
}

async function listCheckpoints(
  context: Context,
  sessionId: string | undefined,
  options: ConnectionOptions,
): Promise<number> {
  const { config, terminal } = context;
  const client = await connect(withOptions(config, options));
  const checkpoints = await Array.fromAsync(client.checkpoints.all({ sessionId, pageSize: 200 }));
  const text = options.json
    ? JSON.stringify({ checkpoints })
    : renderCheckpoints(checkpoints, new Date(), paintFor(context));
  terminal.out(text);
  return EXIT.ok;
}
