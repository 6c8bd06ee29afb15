import type { CliConfig } from "./config.ts";
import type { Terminal } from "./terminal.ts";

/** The dependencies of every verb: configuration and terminal. */
export interface Context {
  config: CliConfig;
  terminal: Terminal;
}
