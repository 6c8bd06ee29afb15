import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { CliError } from "../cli-error.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { withInterrupt } from "../service/interrupt.ts";
import { writeBothStreams } from "../service/show-stream.ts";
import { findSession } from "../sessions/find-session.ts";

interface LogsOptions extends ConnectionOptions {
  follow?: boolean;
}

export function logsCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("logs", [
    "viv logs 4x7k2m9q0a1b2c3d4e5f6 web",
    "viv logs -f 4x7k2m9q0a1b2c3d4e5f6 build 2> errors",
  ])
    .summary("print what a named process wrote")
    .description(
      `Print what a named process wrote, each stream on its own: the last 4 MiB of each. With --follow the last 10 MiB,
and then what comes, until it has exited or Ctrl-C; the process goes on either way.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .argument("<name>", "name of the process")
    .option("-f, --follow", "go on with what is written until the process has exited")
    .option("--json", "print the answer as JSON: {name, stdout, stderr, truncated?}; not with --follow")
    .action((reference: string, name: string, options: LogsOptions) =>
      run(showLogs(context, reference, name, options)),
    );
}

async function showLogs(
  { config, terminal }: Context,
  reference: string,
  name: string,
  options: LogsOptions,
): Promise<number> {
  if (options.json && options.follow)
    throw new CliError("--json cannot be combined with --follow", { exitCode: EXIT.usage });
  const client = await connect(withOptions(config, options));
  const { processes } = client.session(await findSession(client, reference));
  if (options.follow) {
    await withInterrupt(async (signal) => {
      for await (const { stream, data } of processes.followLogs(name, { signal }))
        await terminal.write(stream, data);
    });
    return EXIT.ok;
  }
  const logs = await processes.logs(name);
  if (options.json) {
    terminal.out(JSON.stringify(logs));
    return EXIT.ok;
  }
  await writeBothStreams(terminal, logs);
  if (logs.truncated) terminal.note("viv: only the last 4 MiB of each stream; up to 10 MiB with --follow");
  return EXIT.ok;
}
