import type { Client } from "@vivarium/sdk";
import type { Command } from "commander";
import { asSessionPath, parseSessionPath } from "../args/session-path.ts";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { CliError } from "../cli-error.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { doEach } from "./do-each.ts";

interface RmOptions extends ConnectionOptions {
  recursive?: boolean;
}

export function rmCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("rm", [
    "viv rm 4x7k2m9q0a1b2c3d4e5f6",
    "viv rm $(viv ls --json | jq -r '.sessions[].session_id')",
    "viv rm 4x7k2m9q0a1b2c3d4e5f6:notes.txt",
    "viv rm -r 4x7k2m9q0a1b2c3d4e5f6:build",
  ])
    .summary("end sessions, or remove files of a session")
    .description(
      `End sessions: their machines are stopped and their disks deleted. Their checkpoints stay.
With a colon, remove files, links and empty directories of a session instead; with -r any directory.`,
    )
    .argument("<session|id:path...>", "ids of sessions, or paths in sessions")
    .option("-r, --recursive", "remove directories with everything below them")
    .option("--json", 'print {"results": [{session_id or path, ok, error?, code?}, …]}')
    .action((names: string[], options: RmOptions) => run(remove(context, names, options)));
}

async function remove(context: Context, names: string[], options: RmOptions): Promise<number> {
  const areFiles = names.map((name) => asSessionPath(name) !== undefined);
  if (areFiles.includes(true) && areFiles.includes(false)) {
    throw new CliError("sessions and files cannot be removed with one command", { exitCode: EXIT.usage });
  }
  if (options.recursive && areFiles.includes(false)) {
    throw new CliError("-r is for directories of a session, ID:PATH", {
      hint: "A session is ended without it, files and all.",
      exitCode: EXIT.usage,
    });
  }
  const config = withOptions(context.config, options);
  const client = await connect(config);
  const deps = { ...context, config };
  const { json, recursive } = options;
  return areFiles.includes(true)
    ? doEach(deps, { ids: names, key: "path", json }, (name) => removeFile(client, name, recursive))
    : doEach(deps, { ids: names, key: "session_id", json }, (id) => client.sessions.delete(id));
}

async function removeFile(client: Client, name: string, recursive: boolean | undefined): Promise<void> {
  const { sessionId, path } = parseSessionPath(name);
  await client.session(sessionId).files.delete(path, { recursive });
}
