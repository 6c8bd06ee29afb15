/** One build while the daemon runs: its record, its log, its credential, and what ends it. */
import type { BuildSpec, BuildStatus } from "@vivarium/contract/node";
import type { BuildLog } from "./build-log.ts";
import { type KeptSpec, writeRecord } from "./record.ts";

export interface Build {
  dir: string;
  spec: KeptSpec;
  status: BuildStatus;
  log: BuildLog;
  /** In memory alone. */
  credential: BuildSpec["credential"];
  /** The image that an earlier attempt, perhaps of another node, has found behind the reference. */
  image: BuildSpec["image"];
  /** The machine that has the layout, if the image comes from one. In memory alone. */
  machineId?: string | undefined;
  /** Aborts when the build is deleted, or its daemon ends. */
  over: AbortController;
  /** Settled while nothing works for the build. */
  work: Promise<void>;
}

/** Changes the status, durably. */
export async function become(build: Build, status: BuildStatus): Promise<void> {
  build.status = status;
  await writeRecord(build.dir, build);
}
