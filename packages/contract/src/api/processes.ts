/** Named processes of a session (docs/spec/processes.md). */
import { z } from "zod";
import { Command, ExecRequest } from "./exec.ts";
import { named, timestamp } from "./wire-types.ts";

export const PROCESS_NAME_PATTERN = /^[a-z0-9][a-z0-9-]{0,62}$/;
export const ProcessName = z
  .string()
  .regex(PROCESS_NAME_PATTERN, "must be 1 to 63 of a-z, 0-9 and hyphens, beginning with a letter or digit");

/** Body of `POST …/processes`. */
export const ProcessStart = named("ProcessStart", {
  name: ProcessName,
  command: Command,
  cwd: ExecRequest.shape.cwd,
  keep_alive: z.boolean().nullish(),
});
export type ProcessStart = z.input<typeof ProcessStart>;

export const ProcessInfo = named("ProcessInfo", {
  name: z.string(),
  pid: z.int().optional(),
  command: z.array(z.string()).meta({
    description:
      "of an old exited process, after which many with long commands began, only the first 256 bytes; its last word then ends in …",
  }),
  state: z.enum(["running", "exited"]),
  keep_alive: z.boolean(),
  started_at: timestamp,
  exit_code: z.int().optional(),
  ended_at: timestamp.optional(),
});
export type ProcessInfo = z.infer<typeof ProcessInfo>;

export const ProcessList = named("ProcessList", { processes: z.array(ProcessInfo) });
export type ProcessList = z.infer<typeof ProcessList>;

/** Buffered answer of `GET …/processes/{name}/logs`. */
export const ProcessLogs = named("ProcessLogs", {
  name: z.string(),
  stdout: z.string(),
  stderr: z.string(),
  truncated: z.literal(true).optional(),
  stdout_encoding: z.literal("base64").optional(),
  stderr_encoding: z.literal("base64").optional(),
});
export type ProcessLogs = z.infer<typeof ProcessLogs>;
