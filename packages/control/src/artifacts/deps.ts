import type { ObjectStore } from "@vivarium/objects/store";
import type { JobKindName } from "../jobs/kinds.ts";
import type { JobQueue } from "../jobs/queue.ts";
import type { MoveDeps } from "../moves/deps.ts";

export interface ArtifactDeps extends MoveDeps {
  objects: ObjectStore;
  jobs: JobQueue<JobKindName>;
  /** Signs links. */
  linkKey: Buffer;
  /** Address under which clients reach this service, without a slash at its end. */
  publicUrl: string;
}
