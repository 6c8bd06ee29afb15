import { Command } from "commander";

export interface ConnectionOptions {
  url?: string;
  dataDir?: string;
  json?: boolean;
}

/** Options of verbs that start, stop or save a machine. */
export interface TimedOptions extends ConnectionOptions {
  timing?: boolean;
}

/** Help text of an argument that names a session. */
export const SESSION_ARGUMENT = "id or name of the session, or the beginning of its id";

/** A verb that talks to the service: all of them take these options, in this order. */
export function clientCommand(name: string, examples: string[]): Command {
  return new Command(name)
    .option("--url <url>", "where the service listens (default: $VIV_URL or http://127.0.0.1:7400)")
    .option("--data-dir <dir>", "data directory of the local service, for its API key")
    .addHelpText("after", examplesHelp(examples));
}

export function examplesHelp(examples: string[]): string {
  return `\nExamples:\n${examples.map((example) => `  $ ${example}`).join("\n")}`;
}
