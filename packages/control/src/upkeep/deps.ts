import type { ArtifactDeps } from "../artifacts/deps.ts";
import type { CommandLog } from "../audit/command-log.ts";
import type { StoreWatch } from "../db/store-watch.ts";
import type { PreviewPush } from "../previews/push.ts";
import type { StartDeps } from "../starts/deps.ts";
import type { Attachments } from "../terminals/attachments.ts";
import type { OrphanSnapshots } from "./orphan-snapshots.ts";
import type { Reconciler } from "./reconcile.ts";

/** Dependencies of the periodic work. */
export interface UpkeepDeps extends StartDeps, Pick<ArtifactDeps, "objects" | "jobs"> {
  attachments: Attachments;
  commandLog: CommandLog;
  keptHeadsFile: string;
  previewPush: PreviewPush;
  storeWatch: StoreWatch;
  reconciler: Reconciler;
  orphanSnapshots: OrphanSnapshots;
  /** Sessions whose lease this process renews. If such a lease lapsed, the database was away: the session must stay. */
  leasesKept: ReadonlySet<string>;
  /** When this process last tried to pause a session for its organisation's cap (`performance.now()`). */
  capPauses: Map<string, number>;
}
