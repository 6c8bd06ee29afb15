/**
 * Named processes; see docs/spec/processes.md. They live in the agent's table, in memory: they are frozen, saved
 * and copied with the machine.
 *
 *   POST   /v1/processes         ProcessSpec      → 200 GuestProcess; if it cannot be spawned it is `exited` at once, 127
 *                                                   or 126, with one line in its stderr log. `process_exists`,
 *                                                   `process_limit`, and the cwd errors of exec
 *   GET    /v1/processes                          → 200 frames: a list of GuestProcess (lists.ts), oldest first
 *   GET    /v1/processes/{name}                   → 200 GuestProcess
 *   DELETE /v1/processes/{name}                   → 200 GuestProcess once it has exited: SIGTERM to its process group,
 *                                                   SIGKILL to all of its cgroup after 5 s
 *   GET    /v1/processes/{name}/logs?tail_bytes=  → 200 frames: the last bytes of stdout, of stderr, then `eof`
 *   GET    /v1/processes/{name}/logs?follow=true  → 200 frames: the output that is still kept, then live output, `eof` when the process
 *                                                   has exited and its output is drained
 *
 * Logs are ring files in the guest, 10 MiB a stream, below a directory that the user can read and not write.
 */
import { z } from "zod";
import type { ExecSpec } from "./messages.ts";

export type ProcessSpec = Pick<ExecSpec, "argv" | "cwd" | "env"> & { name: string; keep_alive: boolean };

const milliseconds = z.int().min(0).max(Number.MAX_SAFE_INTEGER);
export const GuestProcess = z.object({
  name: z.string().max(63),
  /** Cut to its beginning and `…` if this process has exited and the records of all processes are too large. */
  argv: z.array(z.string()).max(1024),
  keep_alive: z.boolean(),
  /** Absent if the process could not be spawned. */
  pid: z
    .int()
    .min(1)
    .max(2 ** 22)
    .optional(),
  state: z.enum(["running", "exited"]),
  started_at_ms: milliseconds,
  ended_at_ms: milliseconds.optional(),
  exit_code: z.int().min(0).max(255).optional(),
});
export type GuestProcess = z.infer<typeof GuestProcess>;

/** Payload of the `eof` frame of a log. */
export const LogEnd = z.object({
  /** Whether older output of the stream is missing from this answer. */
  stdout_truncated: z.boolean(),
  stderr_truncated: z.boolean(),
});
export type LogEnd = z.infer<typeof LogEnd>;
