import { CliError } from "./cli-error.ts";
import { readConfig } from "./config.ts";
import { EXIT } from "./exit-codes.ts";
import { runCommandLine } from "./program.ts";
import { processTerminal } from "./terminal.ts";

// A reader that has gone (`| head`) shows at the next write; without a listener it would end us with a stack trace.
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
process.exitCode = await main();

async function main(): Promise<number> {
  try {
    const config = readConfig();
    return await runCommandLine(process.argv.slice(2), { config, terminal: processTerminal });
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    processTerminal.note(`viv: ${error.message}`);
    return error.exitCode ?? EXIT.failed;
  }
}
