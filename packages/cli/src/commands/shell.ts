/** `viv shell`: attaches this terminal to a shell in a session. */
import { UsageError } from "../cli-error.ts";
import { EXIT } from "../exit-codes.ts";
import { attach } from "../terminal-session/attach.ts";
import { type DetachKey, detachKeyOption } from "../terminal-session/detach-key.ts";
import { guestTerm } from "../terminal-session/guest-term.ts";
import { partingLine } from "../terminal-session/parting.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

const DEFAULT_TERMINAL = "shell";

interface ShellOptions {
  terminal?: string;
  new?: boolean;
  cwd?: string;
  detachKey: DetachKey;
}

export function shellCommand(): Verb {
  return sessionVerb("shell", [
    "viv shell 4x7k2m9q0a1b2c3d4e5f6",
    "viv shell --terminal editor 4x7k2m9q0a1b2c3d4e5f6 -- nano notes.txt",
    "viv shell --new 4x7k2m9q0a1b2c3d4e5f6 -- htop",
  ])
    .summary("a shell in a session, on your terminal")
    .description(
      `Open a shell in a session, or come back to the one that was left there: the terminal has a name (shell, unless
--terminal says another) and stays when you leave it with the detach key, Ctrl-] by default. Exits with the shell's own
code. With --new, or a command without --terminal, the terminal has no name and ends when you leave.

When the last client has left, the session's on_pty_detach says what becomes of it: by default it is paused, and the
next use wakes it with everything that runs in it.`,
    )
    .argument("[command...]", "run this instead of a login shell")
    .option("--terminal <name>", "the terminal to open or come back to (default: shell)")
    .option("--new", "a terminal of its own, without a name")
    .option("--cwd <dir>", "working directory of a terminal that is made (default: /workspace)")
    .addOption(detachKeyOption())
    .does(openShell);
}

async function openShell(call: Call<ShellOptions>, reference: string, command: string[]): Promise<number> {
  const { options } = call;
  if (options.new && options.terminal !== undefined)
    throw new UsageError("--new and --terminal exclude each other");
  if (!process.stdin.isTTY || !process.stdout.isTTY) {
    throw new UsageError(
      "viv shell needs a terminal on its input and output",
      "Without one: viv exec ID -- COMMAND, or with input: viv exec -i ID -- COMMAND",
    );
  }
  const { client, id, session } = await call.find(reference);
  // Read for the message at the end; this also fails early when the session does not exist.
  const record = await client.sessions.get(id);
  const isUnnamed = options.new || (command.length > 0 && options.terminal === undefined);
  const name = isUnnamed ? undefined : (options.terminal ?? DEFAULT_TERMINAL);
  const ending = await attach(session, {
    ...guestTerm(call.config),
    terminal: name,
    cmd: command.length > 0 ? command : undefined,
    cwd: options.cwd,
    detachKey: options.detachKey,
  });
  const line = partingLine(record, ending, name);
  if (line !== undefined) call.terminal.note(line);
  return ending.how === "exited" ? ending.code : EXIT.ok;
}
