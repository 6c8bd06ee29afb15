import type { CliConfig } from "./config.ts";
import type { Terminal } from "./terminal.ts";

/** What every verb works with. */
export interface Context {
  config: CliConfig;
  terminal: Terminal;
}
