/** The audit log: who ran which command, and its outcome. So far it covers the commands of sessions. */
import { z } from "zod";
import { named, page, timestamp } from "./wire-types.ts";

/** One command. The session's `command_capture` decides whether `hash`, `executable` or `command` is present. */
export const CommandMeta = named("CommandMeta", {
  kind: z.enum(["exec", "run", "process", "pty"]),
  hash: z.string().optional().meta({ description: "keyed digest, comparable within the organisation" }),
  executable: z.string().optional().meta({ description: "the first word of the command" }),
  command: z.array(z.string()).optional().meta({ description: "the whole command" }),
  truncated: z.literal(true).optional(),
  exit_code: z.int().optional(),
  duration_ms: z.int().optional(),
  timed_out: z.boolean().optional(),
});
export type CommandMeta = z.infer<typeof CommandMeta>;

export const AuditEntry = named("AuditEntry", {
  id: z.string(),
  at: timestamp,
  actor: z.object({ kind: z.string(), id: z.string() }),
  action: z.string(),
  target: z.string(),
  outcome: z.enum(["pending", "ok", "error"]),
  code: z.string().optional(),
  request_id: z.string(),
  ip: z.string(),
  meta: CommandMeta,
});
export type AuditEntry = z.infer<typeof AuditEntry>;

export const AuditList = page("AuditList", { entries: z.array(AuditEntry) });
