import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { renderProcess } from "../print/process.ts";
import { plainText } from "../print/table.ts";
import { findSession } from "../sessions/find-session.ts";

interface StartOptions extends ConnectionOptions {
  name: string;
  cwd?: string;
  keepAlive?: boolean;
}

/** Exit codes of a shell when a command is not found or cannot be executed. */
const NOT_STARTED = [127, 126];

export function startCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("start", [
    "viv start 4x7k2m9q0a1b2c3d4e5f6 --name web -- python3 -m http.server",
    "viv start 4x7k2m9q0a1b2c3d4e5f6 --name build --keep-alive -- make",
  ])
    .summary("start a named process in a session")
    .description(
      `Start a process that runs on after this command: a server, a watcher, a long build. It survives pauses and is
copied by forks. See it with viv ps, read it with viv logs, end it with viv kill.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .argument("<command...>", "program and arguments, run without a shell")
    .requiredOption("--name <name>", "its name: 1 to 63 of a-z, 0-9 and hyphens")
    .option("--cwd <dir>", "working directory (default: /workspace)")
    .option("--keep-alive", "the session does not count as idle while it runs")
    .option("--json", "print the process as JSON")
    .action((reference: string, command: string[], options: StartOptions) =>
      run(startProcess(context, reference, command, options)),
    );
}

async function startProcess(
  { config, terminal }: Context,
  reference: string,
  command: string[],
  options: StartOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const id = await findSession(client, reference);
  const { processes } = client.session(id);
  const { name, cwd, keepAlive } = options;
  const started = await processes.start({ name, command, cwd, keep_alive: keepAlive });
  if (options.json) terminal.out(JSON.stringify(started));
  else terminal.out(terminal.isInteractive ? renderProcess(started) : started.name);
  if (!NOT_STARTED.includes(started.exit_code ?? 0)) return EXIT.ok;
  const { stderr } = await processes.logs(name);
  const reason = plainText(stderr.trim());
  terminal.note(`viv: it could not be started (exit code ${started.exit_code}): ${reason}`);
  return EXIT.failed;
}
