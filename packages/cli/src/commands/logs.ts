/** `viv logs`: prints the output of a named process. */
import { UsageError } from "../cli-error.ts";
import { withInterrupt } from "../service/interrupt.ts";
import { writeBothStreams } from "../service/show-stream.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

export function logsCommand(): Verb {
  return sessionVerb("logs", [
    "viv logs 4x7k2m9q0a1b2c3d4e5f6 web",
    "viv logs -f 4x7k2m9q0a1b2c3d4e5f6 build 2> errors",
  ])
    .summary("print what a named process wrote")
    .description(
      `Print what a named process wrote, each stream on its own: the last 4 MiB of each. With --follow the last 10 MiB,
and then what comes, until it has exited or Ctrl-C; the process goes on either way.`,
    )
    .argument("<name>", "name of the process")
    .option("-f, --follow", "go on with what is written until the process has exited")
    .option("--json", "print the answer as JSON: {name, stdout, stderr, truncated?}; not with --follow")
    .does(showLogs);
}

async function showLogs(call: Call<{ follow?: boolean }>, reference: string, name: string): Promise<void> {
  const { terminal, options } = call;
  if (options.json && options.follow) throw new UsageError("--json cannot be combined with --follow");
  const { processes } = (await call.find(reference)).session;
  if (options.follow) {
    return await withInterrupt(async (signal) => {
      for await (const { stream, data } of processes.followLogs(name, { signal }))
        await terminal.write(stream, data);
    });
  }
  const logs = await processes.logs(name);
  if (options.json) return terminal.out(JSON.stringify(logs));
  await writeBothStreams(terminal, logs);
  if (logs.truncated) terminal.note("viv: only the last 4 MiB of each stream; up to 10 MiB with --follow");
}
