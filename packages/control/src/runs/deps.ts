/** Dependencies of runs. */
import type { ExecDeps } from "../exec/deps.ts";
import type { StartDeps } from "../starts/deps.ts";

export interface RunDeps extends StartDeps, Pick<ExecDeps, "commandLog" | "denials" | "outputQuotas"> {
  /** Ids of the sessions whose lease this process renews. */
  leasesKept: Set<string>;
}
