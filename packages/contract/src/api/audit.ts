/** The audit log: changes, denials and commands of an organisation, as a chain of digests (docs/guide/audit.md). */
import { z } from "zod";
import { CAPABILITIES } from "./tokens.ts";
import { named, page, timestamp } from "./wire-types.ts";

/** Fields of a command. The session's `command_capture` decides whether `hash`, `executable` or `command` is present. */
const command = {
  kind: z.enum(["exec", "run", "process", "pty"]).optional(),
  hash: z.string().optional().meta({ description: "keyed digest, comparable within the organisation" }),
  executable: z.string().optional().meta({ description: "the first word of the command" }),
  command: z.array(z.string()).optional().meta({ description: "the whole command" }),
  truncated: z.literal(true).optional(),
  exit_code: z.int().optional(),
  duration_ms: z.int().optional(),
  timed_out: z.boolean().optional(),
};

/** Further facts in an entry, besides actor, action and time. No field has a secret, a body or a file's content. */
export const AuditMeta = named("AuditMeta", {
  ...command,
  event: z.string().optional().meta({ description: "what caused a move of a session" }),
  end_reason: z.string().optional(),
  checkpoint_id: z.string().optional(),
  children: z.array(z.string()).optional().meta({ description: "sessions that a fork made" }),
  wake_at: timestamp.nullish(),
  template: z.string().optional(),
  image: z.string().optional().meta({ description: "of a template: what it is made of" }),
  volume_id: z.string().optional(),
  size_gb: z.int().optional().meta({ description: "of a volume; `before_gb`: before it grew" }),
  before_gb: z.int().optional(),
  version: z.string().optional(),
  mode: z.enum(["allow", "deny"]).optional(),
  allowed: z.int().optional().meta({ description: "number of entries of an egress policy" }),
  egress_cap_bytes: z.int().nullish(),
  wake_on_http: z.boolean().optional(),
  port: z.int().optional(),
  visibility: z.string().optional(),
  auth: z.string().optional(),
  name: z.string().optional().meta({ description: "of a key, a project or a credential" }),
  registry_host: z.string().optional(),
  role: z.string().optional(),
  project_id: z.string().optional(),
  expires_at: timestamp.optional(),
  origin: z.string().optional().meta({ description: "of a Connection" }),
  header: z.string().optional().meta({ description: "that carries a Connection's credential" }),
  minute: timestamp.optional().meta({ description: "whose requests through a Connection are counted" }),
  sent: z.int().optional().meta({ description: "requests that carried a Connection's credential" }),
  reflected: z.int().optional().meta({ description: "answers that carried it" }),
  refused: z.int().optional().meta({ description: "requests that the Connection refused" }),
  connections: z
    .array(z.object({ name: z.string(), host: z.string() }))
    .optional()
    .meta({ description: "those that a create names" }),
  capabilities: z.array(z.enum(CAPABILITIES)).optional(),
  operation: z.string().optional().meta({ description: "of a denial: the operation that was asked for" }),
  suppressed: z.int().optional().meta({ description: "denials of a minute that have no entry of their own" }),
});
export type AuditMeta = z.infer<typeof AuditMeta>;
export type CommandMeta = Pick<AuditMeta, keyof typeof command>;

/** `system`: the service itself; `anonymous`: a caller without a credential of the service. */
export const ACTOR_KINDS = ["api_key", "scoped_token", "system", "anonymous"] as const;

export const AUDIT_OUTCOMES = ["pending", "ok", "error", "denied"] as const;

export const AuditEntry = named("AuditEntry", {
  id: z.string(),
  at: timestamp,
  actor: z.object({ kind: z.enum(ACTOR_KINDS), id: z.string() }),
  action: z.string(),
  target: z.string(),
  outcome: z.enum(AUDIT_OUTCOMES),
  code: z.string().optional().meta({ description: "of a denial: the code of its answer" }),
  request_id: z.string(),
  ip: z.string(),
  meta: AuditMeta,
});
export type AuditEntry = z.infer<typeof AuditEntry>;

export const AuditList = page("AuditList", { entries: z.array(AuditEntry) });
export type AuditList = z.infer<typeof AuditList>;

/** Kinds of findings of a verification. */
export const AUDIT_FINDINGS = {
  entry_changed: "the entry is not what was written",
  entry_removed: "the chain has an entry that is no longer in the log",
  entry_put_in: "the service has not written this entry",
  entry_unlinked: "the entry is in the log, and not in the chain",
  entry_linked_twice: "the chain has the entry more often than it was written, or is marked to get it again",
  link_changed: "a link of the chain is not what was written, or not in its place",
  link_removed: "links of the chain are missing before this one",
  link_put_in: "a link stands outside of the chain",
  head_forged: "the head of the chain is not what the service wrote",
  end_removed: "the chain ends before its head",
  chain_shortened: "the chain is shorter than one that was seen before, or another one",
} as const;
export type AuditFindingKind = keyof typeof AUDIT_FINDINGS;

export const AuditFinding = named("AuditFinding", {
  kind: z.enum(Object.keys(AUDIT_FINDINGS) as [AuditFindingKind, ...AuditFindingKind[]]),
  message: z.string(),
  entry_id: z.string().optional(),
  seq: z.int().optional().meta({ description: "number of the link" }),
});
export type AuditFinding = z.infer<typeof AuditFinding>;

const ChainEnd = z.object({ seq: z.int(), hash: z.string(), at: timestamp });

/** One step of a verification. The whole is done once an answer has no `next_cursor`. */
export const AuditVerification = page("AuditVerification", {
  findings: z.array(AuditFinding),
  more_findings: z.int().optional().meta({ description: "findings of this step that are not listed" }),
  checked: z.int().meta({ description: "links and entries that this step looked at" }),
  waiting: z.int().meta({ description: "entries of the last seconds, which are not in the chain yet" }),
  before_chain: z.int().meta({ description: "entries of versions without a chain, which nothing protects" }),
  anchor: ChainEnd.optional().meta({ description: "the link after which the kept chain begins" }),
  head: ChainEnd.optional().meta({ description: "the newest link" }),
});
export type AuditVerification = z.infer<typeof AuditVerification>;

/** A link of the chain, in hexadecimal digits; `hash` is over all of the others and the `hash` before it. */
export const AuditLink = named("AuditLink", {
  seq: z.int(),
  entry_id: z.string(),
  entry_seq: z.int().optional(),
  kind: z.enum(["entry", "start", "end"]),
  at: timestamp,
  digest: z.string(),
  previous: z.string(),
  hash: z.string(),
});
export type AuditLink = z.infer<typeof AuditLink>;

/** One line of an export: entries from before the chain, then every link with its entry, then the head. */
export type AuditExportLine =
  | { type: "before_chain"; entry: AuditEntry }
  | { type: "link"; link: AuditLink; entry: AuditEntry | null }
  | { type: "head"; head: { seq: number; hash: string; at: string } | null };
