/** `viv start`: starts a named process in a session. */
import { EXIT } from "../exit-codes.ts";
import { renderProcess } from "../print/process.ts";
import { plainText } from "../print/table.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

interface StartOptions {
  name: string;
  cwd?: string;
  keepAlive?: boolean;
}

/** Exit codes with which a shell reports a command that was not found (127) or cannot be executed (126). */
const NOT_STARTED = [127, 126];

export function startCommand(): Verb {
  return sessionVerb("start", [
    "viv start 4x7k2m9q0a1b2c3d4e5f6 --name web -- python3 -m http.server",
    "viv start 4x7k2m9q0a1b2c3d4e5f6 --name build --keep-alive -- make",
  ])
    .summary("start a named process in a session")
    .description(
      `Start a process that runs on after this command: a server, a watcher, a long build. It survives pauses and is
copied by forks. See it with viv ps, read it with viv logs, end it with viv kill.`,
    )
    .argument("<command...>", "program and arguments, run without a shell")
    .requiredOption("--name <name>", "its name: 1 to 63 of a-z, 0-9 and hyphens")
    .option("--cwd <dir>", "working directory (default: /workspace)")
    .option("--keep-alive", "the session does not count as idle while it runs")
    .option("--json", "print the process as JSON")
    .does(startProcess);
}

async function startProcess(call: Call<StartOptions>, reference: string, command: string[]): Promise<number> {
  const { processes } = (await call.find(reference)).session;
  const { name, cwd, keepAlive } = call.options;
  const started = await processes.start({ name, command, cwd, keep_alive: keepAlive });
  call.print(started, renderProcess, (each) => each.name);
  if (!NOT_STARTED.includes(started.exit_code ?? 0)) return EXIT.ok;
  const { stderr } = await processes.logs(name);
  const reason = plainText(stderr.trim());
  call.terminal.note(`viv: it could not be started (exit code ${started.exit_code}): ${reason}`);
  return EXIT.failed;
}
