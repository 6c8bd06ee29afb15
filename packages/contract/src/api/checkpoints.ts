/** Checkpoints of a session, sessions started from or restored to one, and forks (docs/spec/saved-state.md). */
import { z } from "zod";
import { SessionCreate } from "./sessions.ts";
import { named, page, text, timestamp, wholeNumber } from "./wire-types.ts";

export const CHECKPOINT_NAME_PATTERN = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** Body of `POST /v1/sessions/{id}/checkpoints`. Unknown fields are ignored. */
export const CheckpointCreate = named("CheckpointCreate", {
  name: z
    .string()
    .regex(
      CHECKPOINT_NAME_PATTERN,
      "must be 1 to 63 of a-z, 0-9 and hyphens, beginning and ending with a letter or digit",
    )
    .nullish(),
  labels: SessionCreate.shape.labels,
});
export type CheckpointCreate = z.input<typeof CheckpointCreate>;

export const Checkpoint = named("Checkpoint", {
  checkpoint_id: z.string(),
  parent_session_id: z.string(),
  /** The same value as `parent_session_id`, under the name that other resources use. */
  session_id: z.string(),
  name: z.string().optional(),
  labels: z.record(z.string(), z.string()).optional(),
  /** Bytes stored for this checkpoint. Blocks that an earlier saved state already contains are not counted again. */
  size_bytes: z.int(),
  created_at: timestamp,
  timing: z.record(z.string(), z.int()).optional(),
});
export type Checkpoint = z.infer<typeof Checkpoint>;

export const CheckpointList = page("CheckpointList", { checkpoints: z.array(Checkpoint) });
export type CheckpointList = z.infer<typeof CheckpointList>;

/** Body of `POST /v1/checkpoints/{cid}/sessions`: the fields of a create that the checkpoint does not fix. */
export const CheckpointStart = SessionCreate.pick({
  name: true,
  labels: true,
  external_id: true,
  max_lifetime_ms: true,
  idle_timeout_ms: true,
  paused_ttl_ms: true,
  on_pty_detach: true,
  wake_on_http: true,
  no_sudo: true,
  destroy_on_completion: true,
  env: true,
  secrets: true,
  egress: true,
  connections: true,
  project_id: true,
}).meta({ id: "CheckpointStart" });
export type CheckpointStart = z.input<typeof CheckpointStart>;
export type ParsedCheckpointStart = z.output<typeof CheckpointStart>;

/** Body of `POST /v1/sessions/{id}/restore`: an id, or the name of a checkpoint of this session. */
export const Restore = named("Restore", { checkpoint_id: text() });

/** Body of `POST /v1/sessions/{id}/fork` on a server that makes at most `cap` children at once. */
export function forkWithin(cap: number) {
  return named("Fork", { count: wholeNumber(1, cap).nullish() });
}
export type Fork = z.input<ReturnType<typeof forkWithin>>;

export const ForkResult = named("ForkResult", {
  parent_session_id: z.string(),
  children: z.array(z.string()),
  timing: z.record(z.string(), z.int()).optional(),
});
export type ForkResult = z.infer<typeof ForkResult>;
