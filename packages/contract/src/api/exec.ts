/** Commands run in a session (docs/spec/exec.md). */
import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { CreateTiming } from "./sessions.ts";
import { durationMs, named, text } from "./wire-types.ts";

const COMMAND_LENGTH = `must hold 1 to ${LIMITS.execArgs} strings`;

/** The argv of a command, which is run without a shell. */
export const Command = z
  .array(text())
  .min(1, COMMAND_LENGTH)
  .max(LIMITS.execArgs, COMMAND_LENGTH)
  .refine((argv) => argv[0] !== "", "must not start with an empty string");

/** Body of `POST /v1/sessions/{id}/exec` (docs/spec/exec.md). */
export const ExecRequest = named("ExecRequest", {
  command: Command,
  cwd: text().min(1, "must not be empty").max(LIMITS.pathBytes).nullish(),
  timeout_ms: durationMs(LIMITS.execTimeoutMaxMs),
});
export type ExecRequest = z.input<typeof ExecRequest>;

export const outputFields = {
  stdout: z.string(),
  stderr: z.string(),
  stdout_encoding: z.literal("base64").optional(),
  stderr_encoding: z.literal("base64").optional(),
  truncated: z.literal(true).optional(),
  exit_code: z.int(),
  duration_ms: z.int(),
  timed_out: z.boolean(),
  restore_ms: z.int().optional(),
};

/** Buffered answer of an exec. */
export const ExecResult = named("ExecResult", {
  ...outputFields,
  sandbox_id: z.string(),
  timing: CreateTiming.optional(),
});
export type ExecResult = z.infer<typeof ExecResult>;

/** Data of the `exit` event of a streamed exec. */
export const ExecExit = named("ExecExit", {
  exit_code: z.int(),
  timed_out: z.boolean(),
  duration_ms: z.int(),
});
export type ExecExit = z.infer<typeof ExecExit>;

/** Body of `POST /v1/sessions/batch/exec`. */
export const BatchExecRequest = ExecRequest.extend({
  session_ids: z
    .array(text())
    .min(1, `must hold 1 to ${LIMITS.batchSessions} ids`)
    .max(LIMITS.batchSessions, `must hold 1 to ${LIMITS.batchSessions} ids`),
}).meta({ id: "BatchExecRequest" });
export type BatchExecRequest = z.input<typeof BatchExecRequest>;

export const BatchExecItem = z.union([
  z.object({ session_id: z.string(), ...outputFields, sandbox_id: z.string() }),
  z.object({ session_id: z.string(), error: z.string(), code: z.string() }),
]);
export const BatchExecResult = named("BatchExecResult", { results: z.array(BatchExecItem) });
export type BatchExecResult = z.infer<typeof BatchExecResult>;
