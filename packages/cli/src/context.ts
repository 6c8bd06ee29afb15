import type { CliConfig } from "./config.ts";
import type { Terminal } from "./terminal.ts";

/** Dependencies of every verb. */
export interface Context {
  config: CliConfig;
  terminal: Terminal;
}
