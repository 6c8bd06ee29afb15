import { hasCode } from "@vivarium/kit/unknown-error";
import { Command, CommanderError } from "commander";
import { CliError } from "./cli-error.ts";
import { archiveCommand } from "./commands/archive/archive.ts";
import { artifactsCommand } from "./commands/artifacts/artifacts.ts";
import { auditCommand } from "./commands/audit/audit.ts";
import { backupCommand } from "./commands/backup.ts";
import { capCommand } from "./commands/cap.ts";
import { catCommand } from "./commands/cat.ts";
import { checkpointCommand } from "./commands/checkpoint/checkpoint.ts";
import { connectCommand } from "./commands/connect/connect.ts";
import { continueUpdateCommand } from "./commands/continue-update.ts";
import { cpCommand } from "./commands/cp.ts";
import { createCommand } from "./commands/create.ts";
import { doctorCommand } from "./commands/doctor.ts";
import { downCommand } from "./commands/down.ts";
import { editCommand } from "./commands/edit.ts";
import { egressCommand } from "./commands/egress/egress.ts";
import { eventsCommand } from "./commands/events.ts";
import { execCommand } from "./commands/exec.ts";
import { exposeCommand } from "./commands/expose.ts";
import { findCommand } from "./commands/find.ts";
import { forkCommand } from "./commands/fork.ts";
import { getCommand } from "./commands/get.ts";
import { grepCommand } from "./commands/grep.ts";
import { installCommand } from "./commands/install.ts";
import { kekCommand } from "./commands/kek/kek.ts";
import { keyCommand } from "./commands/key/key.ts";
import { killCommand } from "./commands/kill.ts";
import { logsCommand } from "./commands/logs.ts";
import { lsCommand } from "./commands/ls.ts";
import { mkdirCommand } from "./commands/mkdir.ts";
import { mvCommand } from "./commands/mv.ts";
import { openCommand } from "./commands/open.ts";
import { pauseCommand } from "./commands/pause.ts";
import { projectCommand } from "./commands/project/project.ts";
import { psCommand } from "./commands/ps.ts";
import { readyCommand } from "./commands/ready.ts";
import { registryCommand } from "./commands/registry/registry.ts";
import { restoreCommand } from "./commands/restore.ts";
import { restoreBackupCommand } from "./commands/restore-backup.ts";
import { resumeCommand } from "./commands/resume.ts";
import { rmCommand } from "./commands/rm.ts";
import { runCommand } from "./commands/run.ts";
import { secretCommand } from "./commands/secret/secret.ts";
import { shellCommand } from "./commands/shell.ts";
import { sshCommand } from "./commands/ssh.ts";
import { sshConfigCommand } from "./commands/ssh-config.ts";
import { startCommand } from "./commands/start.ts";
import { storageCommand } from "./commands/storage/storage.ts";
import { templateCommand } from "./commands/template/template.ts";
import { tokenCommand } from "./commands/token/token.ts";
import { treeCommand } from "./commands/tree.ts";
import { tunnelCommand } from "./commands/tunnel.ts";
import { unexposeCommand } from "./commands/unexpose.ts";
import { uninstallCommand } from "./commands/uninstall.ts";
import { upCommand } from "./commands/up.ts";
import { Verb } from "./commands/verb.ts";
import { versionCommand } from "./commands/version.ts";
import { volumeCommand } from "./commands/volume/volume.ts";
import { watchCommand } from "./commands/watch.ts";
import { type CliConfig, withOptions } from "./config.ts";
import type { Context } from "./context.ts";
import { EXIT, EXIT_CODES_HELP } from "./exit-codes.ts";
import { explainError } from "./print/explain-error.ts";
import { Interrupted } from "./service/interrupt.ts";
import type { Terminal } from "./terminal.ts";

const VERBS = {
  Service: [
    upCommand,
    downCommand,
    doctorCommand,
    versionCommand,
    installCommand,
    backupCommand,
    restoreBackupCommand,
    storageCommand,
    uninstallCommand,
  ],
  Sessions: [
    runCommand,
    createCommand,
    lsCommand,
    getCommand,
    rmCommand,
    treeCommand,
    watchCommand,
    eventsCommand,
  ],
  "Inside a session": [execCommand, shellCommand, sshCommand, sshConfigCommand],
  Processes: [startCommand, psCommand, logsCommand, killCommand],
  "Files of a session": [
    cpCommand,
    catCommand,
    editCommand,
    findCommand,
    grepCommand,
    mkdirCommand,
    mvCommand,
  ],
  Network: [exposeCommand, unexposeCommand, openCommand, egressCommand, capCommand],
  "Saved state": [
    pauseCommand,
    resumeCommand,
    forkCommand,
    checkpointCommand,
    archiveCommand,
    artifactsCommand,
    restoreCommand,
    templateCommand,
    volumeCommand,
  ],
  Access: [
    keyCommand,
    projectCommand,
    tokenCommand,
    secretCommand,
    connectCommand,
    registryCommand,
    kekCommand,
    auditCommand,
  ],
} as const;

/** Verbs that exit with the code of the program they run: a failure of viv itself exits with 125. */
const RUNS_A_PROGRAM = ["run", "exec", "shell", "ssh"];

const ABOUT = `Run untrusted code, each execution in a virtual machine of its own.

Environment:
  VIV_URL       where the service listens (default: http://127.0.0.1:7400)
  VIV_API_KEY   API key (default: the one the local service made, <data-dir>/control/bootstrap.key)
  VIV_DATA_DIR  data directory of the local service (default: /var/lib/vivarium)
  DATABASE_URL  up: a PostgreSQL of your own instead of the built-in one`;

/** Runs one command line of `viv` and returns the exit code. */
export async function runCommandLine(argv: string[], context: Context): Promise<number> {
  let exitCode: number = EXIT.ok;
  const command = { verb: "", config: context.config };
  const program = buildProgram(context.terminal, async (verb) => {
    command.verb = verb.name();
    command.config = withOptions(context.config, verb.opts());
    exitCode = await verb.run({ ...context, config: command.config });
  });
  try {
    await program.parseAsync(argv, { from: "user" });
    return exitCode;
  } catch (error) {
    return exitCodeOfFailure(error, command, context);
  }
}

function buildProgram(terminal: Terminal, run: (verb: Verb) => Promise<void>): Command {
  const program = new Command("viv")
    .description(ABOUT)
    .enablePositionalOptions()
    .showHelpAfterError("(viv --help, or viv VERB --help, shows what is possible)")
    .addHelpText("after", `\n${EXIT_CODES_HELP}`);
  for (const [group, verbs] of Object.entries(VERBS)) {
    for (const verb of verbs) program.addCommand(verb().helpGroup(`${group}:`));
  }
  for (const verb of [tunnelCommand, readyCommand, continueUpdateCommand])
    program.addCommand(verb(), { hidden: true });
  for (const command of withSubcommands(program)) {
    if (command !== program) command.showHelpAfterError("(add --help to see what is possible)");
    if (command instanceof Verb) command.action(() => run(command));
    command.exitOverride().configureOutput({
      writeOut: (text) => terminal.out(text.trimEnd()),
      writeErr: (text) => terminal.note(text.trimEnd()),
    });
  }
  return program;
}

function withSubcommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(withSubcommands)];
}

function exitCodeOfFailure(
  error: unknown,
  { verb, config }: { verb: string; config: CliConfig },
  { terminal }: Context,
): number {
  // The parser has already printed its message, or the help.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  if (error instanceof Interrupted) return error.signal === "SIGTERM" ? EXIT.terminated : EXIT.interrupted;
  if (hasCode(error, "EPIPE")) return EXIT.brokenPipe;
  terminal.note(explainError(error, config));
  if (error instanceof CliError && error.exitCode !== undefined) return error.exitCode;
  if (verb === "grep") return EXIT.searchFailed;
  return RUNS_A_PROGRAM.includes(verb) ? EXIT.notRun : EXIT.failed;
}
