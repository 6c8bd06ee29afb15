import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { CliError } from "../cli-error.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { findSession } from "../sessions/find-session.ts";
import { attach } from "../terminal-session/attach.ts";
import { type DetachKey, detachKeyOption } from "../terminal-session/detach-key.ts";
import { guestTerm } from "../terminal-session/guest-term.ts";
import { partingLine } from "../terminal-session/parting.ts";

const DEFAULT_TERMINAL = "shell";

interface ShellOptions extends ConnectionOptions {
  terminal?: string;
  new?: boolean;
  cwd?: string;
  detachKey: DetachKey;
}

export function shellCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("shell", [
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
    .argument("<session>", SESSION_ARGUMENT)
    .argument("[command...]", "run this instead of a login shell")
    .option("--terminal <name>", "the terminal to open or come back to (default: shell)")
    .option("--new", "a terminal of its own, without a name")
    .option("--cwd <dir>", "working directory of a terminal that is made (default: /workspace)")
    .addOption(detachKeyOption())
    .action((reference: string, command: string[], options: ShellOptions) =>
      run(openShell(context, reference, command, options)),
    );
}

async function openShell(
  { config, terminal }: Context,
  reference: string,
  command: string[],
  options: ShellOptions,
): Promise<number> {
  if (options.new && options.terminal !== undefined)
    throw new CliError("--new and --terminal exclude each other", { exitCode: EXIT.usage });
  if (!process.stdin.isTTY || !process.stdout.isTTY) {
    throw new CliError("viv shell needs a terminal on its input and output", {
      hint: "Without one: viv exec ID -- COMMAND, or with input: viv exec -i ID -- COMMAND",
      exitCode: EXIT.usage,
    });
  }
  const client = await connect(withOptions(config, options));
  // Also fails early when the session does not exist.
  const record = await client.sessions.get(await findSession(client, reference));
  const isUnnamed = options.new || (command.length > 0 && options.terminal === undefined);
  const name = isUnnamed ? undefined : (options.terminal ?? DEFAULT_TERMINAL);
  const ending = await attach(client.session(record.session_id), {
    ...guestTerm(config),
    terminal: name,
    cmd: command.length > 0 ? command : undefined,
    cwd: options.cwd,
    detachKey: options.detachKey,
  });
  const line = partingLine(record, ending, name);
  if (line !== undefined) terminal.note(line);
  return ending.how === "exited" ? ending.code : EXIT.ok;
}
