/** Runs the command line of this process with its environment and terminal. */
import { CliError } from "./cli-error.ts";
import { readConfig } from "./config.ts";
import { EXIT } from "./exit-codes.ts";
import { runCommandLine } from "./program.ts";
import { processTerminal } from "./terminal.ts";

// A closed pipe (`| head`) is handled at the next write; without a listener the error would end viv with a stack trace.
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});

/** Returns the code to exit with; an error that is the user's to mend is printed. */
export async function runMain(): Promise<number> {
  try {
    const config = readConfig();
    return await runCommandLine(process.argv.slice(2), { config, terminal: processTerminal });
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    processTerminal.note(`viv: ${error.message}`);
    return error.exitCode ?? EXIT.failed;
  }
}
