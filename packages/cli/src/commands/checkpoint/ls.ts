import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../../args/shared-options.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { EXIT } from "../../exit-codes.ts";
import { renderCheckpoints } from "../../print/checkpoint.ts";
import { paintFor } from "../../print/paint.ts";
import { findSession } from "../../sessions/find-session.ts";

export function checkpointLsCommand(
  run: (code: Promise<number>) => Promise<void>,
  context: Context,
): Command {
  return clientCommand("ls", ["viv checkpoint ls", "viv checkpoint ls 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("list checkpoints")
    .description("List checkpoints, newest first, also those of sessions that have ended.")
    .argument("[session]", "only those of this session, by its id, name or the beginning of its id")
    .option("--json", 'print {"checkpoints": [checkpoint, …]}')
    .action((reference: string | undefined, options: ConnectionOptions) =>
      run(listCheckpoints(context, reference, options)),
    );
}

async function listCheckpoints(
  context: Context,
  reference: string | undefined,
  options: ConnectionOptions,
): Promise<number> {
  const { config, terminal } = context;
  const client = await connect(withOptions(config, options));
  const sessionId =
    reference === undefined ? undefined : await findSession(client, reference, { orEnded: true });
  const checkpoints = await Array.fromAsync(client.checkpoints.all({ sessionId, pageSize: 200 }));
  const text = options.json
    ? JSON.stringify({ checkpoints })
    : renderCheckpoints(checkpoints, new Date(), paintFor(context));
  terminal.out(text);
  return EXIT.ok;
}
