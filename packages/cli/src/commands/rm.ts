import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { removeEach } from "./remove-each.ts";

export function rmCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("rm", [
    "viv rm 4x7k2m9q0a1b2c3d4e5f6",
    "viv rm $(viv ls --json | jq -r '.sessions[].session_id')",
  ])
    .summary("end sessions")
    .description("End sessions: their machines are stopped and their disks deleted. Their checkpoints stay.")
    .argument("<session...>", "ids of the sessions")
    .option("--json", 'print {"results": [{session_id, ok, error?, code?}, …]}')
    .action((ids: string[], options: ConnectionOptions) => run(removeSessions(context, ids, options)));
}

async function removeSessions(context: Context, ids: string[], options: ConnectionOptions): Promise<number> {
  const config = withOptions(context.config, options);
  const client = await connect(config);
  const what = { ids, key: "session_id", json: options.json };
  return removeEach({ ...context, config }, what, (id) => client.sessions.delete(id));
}
