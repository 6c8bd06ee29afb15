/** `viv exec`: runs a command in a session and exits with its code. */
import type { Session } from "@vivarium/sdk";
import { withoutSeparator } from "../args/command-words.ts";
import { parseDuration } from "../args/values.ts";
import { UsageError } from "../cli-error.ts";
import { EXIT } from "../exit-codes.ts";
import { withInterrupt } from "../service/interrupt.ts";
import { exitCodeOf, showStream } from "../service/show-stream.ts";
import { attach } from "../terminal-session/attach.ts";
import { parseDetachKey } from "../terminal-session/detach-key.ts";
import { execWithInput } from "../terminal-session/feed-stdin.ts";
import { guestTerm } from "../terminal-session/guest-term.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

interface ExecOptions {
  cwd?: string;
  timeout?: number;
  interactive?: boolean;
}

/** Default timeout with --interactive: the longest that the API allows, since a human may type slowly. */
const INTERACTIVE_TIMEOUT_MS = 60 * 60_000;

export function execCommand(): Verb {
  return sessionVerb("exec", [
    "viv exec 4x7k2m9q0a1b2c3d4e5f6 -- ls -l",
    "viv exec --timeout 5m 4x7k2m9q0a1b2c3d4e5f6 -- bash -c 'make && make test'",
    "viv exec --json 4x7k2m9q0a1b2c3d4e5f6 uname -r",
    "tar -c src | viv exec -i 4x7k2m9q0a1b2c3d4e5f6 -- tar -x",
    "viv exec -i 4x7k2m9q0a1b2c3d4e5f6 -- python3",
  ])
    .summary("run a command in a session")
    .description(
      `Run a command in a session and exit with its code. Output is passed on as it comes. Its input is empty; with
--interactive it is ours: byte by byte with its end from a pipe or a file, or keys and screen when both our input and
our output are a terminal.`,
    )
    .argument("<command...>", "program and arguments, run without a shell")
    .option("--cwd <dir>", "working directory (default: /workspace)")
    .option(
      "--timeout <time>",
      "stop it after this long, at most 1h (default: 30s, with -i 1h)",
      parseDuration,
    )
    .option("-i, --interactive", "pass our standard input on")
    .option("--json", "wait for the end, then print the result as JSON")
    .passThroughOptions()
    .does(execInSession);
}

/** The command without a leading `--`, which the parser keeps; fails when no word is left. */
function commandOf(words: string[]): string[] {
  const command = withoutSeparator(words);
  if (command.length > 0) return command;
  throw new UsageError(
    "the command is missing after --",
    "Say what to run, as in: viv exec 4x7k2m9q0a1b2c3d4e5f6 -- ls -l",
  );
}

async function execInSession(call: Call<ExecOptions>, reference: string, words: string[]): Promise<number> {
  const command = commandOf(words);
  const { terminal, options } = call;
  if (options.interactive && options.json) throw new UsageError("-i cannot be combined with --json");
  const { session } = await call.find(reference);
  if (options.interactive) return execInteractively(call, session, command);
  const request = { command, cwd: options.cwd, timeout_ms: options.timeout };
  if (options.json) {
    const result = await session.exec(request);
    terminal.out(JSON.stringify(result));
    return exitCodeOf(terminal, result);
  }
  return withInterrupt(async (signal) =>
    exitCodeOf(terminal, await showStream(terminal, session.execStream(request, { signal }))),
  );
}

async function execInteractively(
  { config, terminal, options }: Call<ExecOptions>,
  session: Session,
  command: string[],
): Promise<number> {
  const { cwd, timeout = INTERACTIVE_TIMEOUT_MS } = options;
  if (!process.stdin.isTTY || !process.stdout.isTTY) {
    return withInterrupt(async (signal) => {
      const input = { input: process.stdin, signal };
      const events = execWithInput(session, { command, cwd, timeout_ms: timeout }, input);
      return exitCodeOf(terminal, await showStream(terminal, events));
    });
  }
  if (options.timeout !== undefined) {
    throw new UsageError("a command on a terminal has no timeout: leave --timeout out");
  }
  const detachKey = parseDetachKey("none");
  const ending = await attach(session, { ...guestTerm(config), cmd: command, cwd, detachKey });
  return ending.how === "exited" ? ending.code : EXIT.notRun;
}
