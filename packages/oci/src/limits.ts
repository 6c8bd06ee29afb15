/** Limits of one pull. A registry is not believed: whatever it sends ends at one of these. */

export interface PullLimits {
  /** Bytes of a manifest or an index. */
  manifestBytes: number;
  configBytes: number;
  layers: number;
  /** Bytes of all layers, as they are sent. */
  layerBytes: number;
  /** Bytes of a token service's answer. */
  tokenBytes: number;
  /** Indexes between the reference and the manifest. */
  indexDepth: number;
  redirects: number;
  /** Times that a request is sent again after a failure without progress. */
  retries: number;
  /** Times that one layer is continued after its connection broke, whatever the progress. */
  resumes: number;
  /** Wait before the first retry; twice as long before each further one. */
  retryMs: number;
  /** Layers that are fetched at the same time. */
  concurrency: number;
  connectMs: number;
  /** Time until the head of an answer is complete. */
  headMs: number;
  /** At least `minBytes` of a body arrive in each such time. */
  windowMs: number;
  minBytes: number;
  /** Time of the whole pull. */
  totalMs: number;
}

const KIB = 1024;
const MIB = 1024 * KIB;
const SECOND_MS = 1000;

export const PULL_LIMITS: Readonly<PullLimits> = {
  manifestBytes: 4 * MIB,
  configBytes: MIB,
  layers: 128,
  layerBytes: 10 * 1024 * MIB,
  tokenBytes: 128 * KIB,
  indexDepth: 3,
  redirects: 5,
  retries: 3,
  resumes: 20,
  retryMs: SECOND_MS / 2,
  concurrency: 3,
  connectMs: 10 * SECOND_MS,
  headMs: 30 * SECOND_MS,
  windowMs: 30 * SECOND_MS,
  minBytes: 300 * KIB,
  totalMs: 20 * 60 * SECOND_MS,
};
