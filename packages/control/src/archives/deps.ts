import type { JobKindName } from "../jobs/kinds.ts";
import type { JobQueue } from "../jobs/queue.ts";
import type { MoveDeps } from "../moves/deps.ts";

export interface ArchiveDeps extends MoveDeps {
  jobs: JobQueue<JobKindName>;
}
