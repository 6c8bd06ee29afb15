/** Egress of a session: its policy, its daily cap and its log (docs/spec/network.md). */
import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { named, page, text, timestamp, wholeNumber } from "./wire-types.ts";

export const EGRESS_MODES = ["allow", "deny"] as const;

/** Unknown fields are refused: a misspelt `alow` must not become full egress. Control checks each entry. */
export const EgressPolicy = z
  .strictObject({
    mode: z.enum(EGRESS_MODES),
    allow: z
      .array(text())
      .max(LIMITS.egressEntries, `must hold at most ${LIMITS.egressEntries} entries`)
      .optional(),
  })
  .meta({ id: "EgressPolicy" });
export type EgressPolicy = z.infer<typeof EgressPolicy>;

/** The policy in force, with its entries in normalised form. */
export const SessionEgress = named("SessionEgress", {
  session_id: z.string(),
  mode: z.enum(EGRESS_MODES),
  allow: z.array(z.string()),
});
export type SessionEgress = z.infer<typeof SessionEgress>;

/** Body of `PATCH /v1/sessions/{id}`. Unknown fields are ignored. */
export const SessionPatch = named("SessionPatch", {
  egress_cap_bytes: wholeNumber(0, Number.MAX_SAFE_INTEGER).meta({
    description: "bytes that may leave the session in a UTC day; 0: no cap",
  }),
  wake_on_http: z.boolean().nullish(),
});
export type SessionPatch = z.infer<typeof SessionPatch>;

export const EgressCap = named("EgressCap", {
  session_id: z.string(),
  egress_cap_bytes: z.int(),
  today_bytes: z.int(),
  date: z.string().meta({ format: "date" }),
  wake_on_http: z.boolean(),
});
export type EgressCap = z.infer<typeof EgressCap>;

/** Body of `PUT /v1/org/egress-cap`. */
export const OrgEgressCapPut = named("OrgEgressCapPut", {
  cap_bytes: wholeNumber(0, Number.MAX_SAFE_INTEGER)
    .nullable()
    .meta({ description: "bytes that may leave all sessions in a UTC day; 0: no cap; null: the default" }),
});
export type OrgEgressCapPut = z.infer<typeof OrgEgressCapPut>;

export const OrgEgressCap = named("OrgEgressCap", {
  cap_bytes: z.int().meta({ description: "the cap in force; 0: none" }),
  override: z.boolean().meta({ description: "whether the organisation set it" }),
  default_cap_bytes: z.int().meta({ description: "the operator's default; 0: none" }),
  today_bytes: z.int(),
  date: z.string().meta({ format: "date" }),
});
export type OrgEgressCap = z.infer<typeof OrgEgressCap>;

export const EGRESS_KINDS = ["tcp", "udp", "icmp", "http", "tls", "dns", "connection"] as const;
export const EGRESS_DECISIONS = ["allowed", "denied"] as const;

/**
 * One line of a session's egress log: a flow that ended, a refusal, a DNS question, or a request through a Connection, which
 * alone has `method`, `path` (without its query), `connection`, `rule` and `status`.
 */
export const EgressLogEntry = named("EgressLogEntry", {
  at: timestamp,
  kind: z.enum(EGRESS_KINDS),
  host: z.string().optional(),
  address: z.string().optional(),
  port: z.int().optional(),
  decision: z.enum(EGRESS_DECISIONS),
  reason: z.string(),
  private: z.literal(true).optional().meta({
    description: "present where the address is a private one that the operator opened to sessions",
  }),
  method: z.string().optional(),
  path: z.string().optional(),
  connection: z.string().optional(),
  rule: z.int().optional().meta({ description: "index of the path pattern that allowed the request" }),
  status: z.int().optional().meta({ description: "status of the origin's answer" }),
  unscanned: z.literal(true).optional().meta({
    description: "present where the answer had a coding in which it was not searched for the credential",
  }),
  bytes_out: z.int(),
  bytes_in: z.int(),
  count: z.int().meta({ description: "number of equal events that this line stands for" }),
});
export type EgressLogEntry = z.infer<typeof EgressLogEntry>;

export const EgressLog = page("EgressLog", { entries: z.array(EgressLogEntry) });
export type EgressLog = z.infer<typeof EgressLog>;
