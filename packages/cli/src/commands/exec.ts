import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { parseDuration } from "../args/values.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { withInterrupt } from "../service/interrupt.ts";
import { exitCodeOf, showStream } from "../service/show-stream.ts";

interface ExecOptions extends ConnectionOptions {
  cwd?: string;
  timeout?: number;
}

export function execCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("exec", [
    "viv exec 4x7k2m9q0a1b2c3d4e5f6 -- ls -l",
    "viv exec --timeout 5m 4x7k2m9q0a1b2c3d4e5f6 -- bash -c 'make && make test'",
    "viv exec --json 4x7k2m9q0a1b2c3d4e5f6 uname -r",
  ])
    .summary("run a command in a session")
    .description("Run a command in a session and exit with its code. Output is passed on as it comes.")
    .argument("<session>", "id of the session")
    .argument("<command...>", "program and arguments, run without a shell")
    .option("--cwd <dir>", "working directory (default: /workspace)")
    .option("--timeout <time>", "stop it after this long, at most 1h (default: 30s)", parseDuration)
    .option("--json", "wait for the end, then print the result as JSON")
    .passThroughOptions()
    .action((id: string, command: string[], options: ExecOptions) =>
      run(execInSession(context, id, withoutSeparator(command), options)),
    );
}

async function execInSession(
  { config, terminal }: Context,
  id: string,
  command: string[],
  options: ExecOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const request = { command, cwd: options.cwd, timeout_ms: options.timeout };
  if (options.json) {
    const result = await client.sessions.exec(id, request);
    terminal.out(JSON.stringify(result));
    return exitCodeOf(terminal, result);
  }
  return withInterrupt(async (signal) => {
    const ending = await showStream(terminal, client.sessions.execStream(id, request, { signal }));
    return exitCodeOf(terminal, ending);
  });
}

/** Everything after the id belongs to the command, a separating `--` does not. */
function withoutSeparator(command: string[]): string[] {
  return command[0] === "--" ? command.slice(1) : command;
}
