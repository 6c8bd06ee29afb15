/** The kinds of background jobs, as data. A job's input is the id of a row, which says all that is to be done. */

export interface JobKind {
  /** How often a job that failed, or whose process died, is tried again. */
  retries: number;
  /** Wait before the first retry, in seconds; it doubles with every further one. */
  backoffS: number;
  /** Longest duration of one attempt, in seconds. An attempt that takes longer counts as failed. */
  expireS: number;
  /** Jobs of this kind that one process runs at once. */
  concurrency: number;
  /** Most jobs that wait. Work beyond it stays in its rows, and a sweep adds it later. */
  waiting: number;
}

export const JOB_KINDS = {
  /** Copies files out of a machine into the object store. */
  artifact_capture: { retries: 4, backoffS: 2, expireS: 3_600, concurrency: 4, waiting: 1_000 },
  /**
   * Lets the node make templates of images, one after the other. There is one such job, for all builds; after a death or a
   * failure the sweep adds another one, so that no build waits for the retries of earlier ones.
   */
  template_builds: { retries: 0, backoffS: 2, expireS: 7_200, concurrency: 1, waiting: 10 },
  /** Removes from the object store what a deleted, expired or failed artifact had there. */
  artifact_removal: { retries: 10, backoffS: 10, expireS: 3_600, concurrency: 2, waiting: 1_000 },
  /** Lets the node pack a saved state into the object store. The node packs few at once, and lets others wait. */
  archive_upload: { retries: 6, backoffS: 2, expireS: 7_200, concurrency: 3, waiting: 1_000 },
  /** Removes from the object store what a deleted archive alone had there. */
  archive_removal: { retries: 5, backoffS: 10, expireS: 3_600, concurrency: 1, waiting: 1_000 },
} as const satisfies Record<string, JobKind>;
export type JobKindName = keyof typeof JOB_KINDS;

/** States of jobs that matter to an operator. */
export const JOB_STATES = ["created", "retry", "active", "failed"] as const;
