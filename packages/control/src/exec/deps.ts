import type { CommandLog } from "../audit/command-log.ts";
import type { Denials } from "../audit/denials.ts";
import type { MoveDeps } from "../moves/deps.ts";
import type { OutputQuotas } from "./output-quota.ts";

export interface ExecDeps extends MoveDeps {
  commandLog: CommandLog;
  denials: Denials;
  outputQuotas: OutputQuotas;
}
