import { VivariumError } from "@vivarium/sdk";
import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { explainError } from "../print/explain-error.ts";

interface RmResult {
  session_id: string;
  ok: boolean;
  error?: string;
  code?: string;
}

export function rmCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("rm", [
    "viv rm 4x7k2m9q0a1b2c3d4e5f6",
    "viv rm $(viv ls --json | jq -r '.sessions[].session_id')",
  ])
    .summary("end sessions")
    .description("End sessions: their machines are stopped and their disks deleted.")
    .argument("<session...>", "ids of the sessions")
    .option("--json", 'print {"results": [{session_id, ok, error?, code?}, …]}')
    .action((ids: string[], options: ConnectionOptions) => run(removeSessions(context, ids, options)));
}

async function removeSessions(
  { config, terminal }: Context,
  ids: string[],
  options: ConnectionOptions,
): Promise<number> {
  const effective = withOptions(config, options);
  const client = await connect(effective);
  const results: RmResult[] = [];
  for (const id of ids) {
    try {
      await client.sessions.delete(id);
      results.push({ session_id: id, ok: true });
      if (!options.json) terminal.out(id);
    } catch (error) {
      // One id that is gone does not keep the others; a service that does not answer keeps them all.
      if (!(error instanceof VivariumError) || error.status === 0 || error.status === 401) throw error;
      results.push({ session_id: id, ok: false, error: error.message, code: error.code });
      if (!options.json) terminal.note(explainError(error, effective));
    }
  }
  if (options.json) terminal.out(JSON.stringify({ results }));
  return results.every((result) => result.ok) ? EXIT.ok : EXIT.failed;
}
