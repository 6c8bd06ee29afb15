/**
 * Calls of the gateway to its node, HTTP/1.1 over a unix socket that only the gateway's user and root can open:
 *
 *   GET  /v1/tables          → 200 application/x-ndjson, endless: one whole GatewayTables per line, the newest at once
 *                              and again after every change; an empty line every 5 s as a heartbeat. The newest
 *                              connection is the gateway; an older one is closed
 *   POST /v1/applied         → 204. Confirms that every flow, cookie and socket which this version of the tables does
 *        Applied               not allow is closed. A version that was skipped counts as applied with a later one
 *   GET  /v1/connections     → 200 application/x-ndjson, endless: ConnectionLine, one per line; an empty line every 5 s
 *                              as a heartbeat. What the node knows comes at once, then every change. A new node process
 *                              knows nothing until control has sent it: the gateway keeps what it has until an `only`
 *   POST /v1/connections/applied → 204. Confirms all lines up to `seq`: what used an older credential is closed
 *        ConnectionsApplied
 *   POST /v1/pins     Pin    → 204 once the kernel lets the machine reach these addresses on these ports (`host:port`
 *                              entries). Sent before the DNS answer. 409 if the machine has another generation by
 *                              now; 503 if too many are pending or open for it
 *   POST /v1/wakes  WakeCall → 200 WakeOutcome, after at most 30 s; several calls for one session share one wake
 *   POST /v1/flows    Flows  → 204: flows and refusals for the sessions' egress logs, and the sessions whose previews
 *                              were used
 */
import { z } from "zod";
import { EGRESS_DECISIONS, EGRESS_KINDS } from "../api/egress.ts";
import { CONNECTION_CODES, SessionConnections } from "./connections.ts";

export const Applied = z.object({ version: z.int().min(1) });

/** `age_ms`: time since control last said that what the node knows is current. */
export const ConnectionLine = z.discriminatedUnion("type", [
  z.object({ type: z.literal("session"), seq: z.int().min(1), session: SessionConnections }),
  /** Sessions with Connections that have a machine. All others are forgotten. */
  z.object({ type: z.literal("only"), seq: z.int().min(1), session_ids: z.array(z.string()) }),
  z.object({ type: z.literal("lease"), age_ms: z.int().min(0) }),
]);
export type ConnectionLine = z.infer<typeof ConnectionLine>;

export const ConnectionsApplied = z.object({ seq: z.int().min(1) });

export const Pin = z.object({
  machine_id: z.string(),
  generation: z.int().min(1),
  /** The requested name. The pin survives changes of policy that still allow name and port. */
  host: z.string().max(253),
  ports: z.array(z.int().min(1).max(65_535)).min(1).max(256),
  addresses: z.array(z.ipv4()).min(1).max(4),
  ttl_s: z.int().min(30).max(4200),
});
export type Pin = z.infer<typeof Pin>;

export const WakeCall = z.object({ session_id: z.string() });

/** `live`: the tables with the live machine were sent before this answer. */
export const WakeOutcome = z.discriminatedUnion("result", [
  z.object({ result: z.literal("live") }),
  z.object({
    result: z.literal("refused"),
    /** 410: never again; 503: later; 404: there is no such session. */
    status: z.union([z.literal(404), z.literal(410), z.literal(503)]),
    retry_after_s: z.int().min(1).optional(),
  }),
]);
export type WakeOutcome = z.infer<typeof WakeOutcome>;

/** Why a flow or question was refused, or which rule allowed it. Machine-readable; see docs/guide/network.md. */
export const EGRESS_REASONS = [
  "name_allowed",
  "address_allowed",
  "mode_allow",
  "name_not_allowed",
  "no_name",
  "malformed",
  "never_address",
  "host_mismatch",
  "not_resolved",
  "not_reachable",
  "port_not_allowed",
  "too_many",
  "too_many_names",
  "capped",
  "policy_changed",
  // A request through a Connection that was sent with the credential, and one whose answer carried the credential.
  "connection_used",
  "connection_reflected",
  ...CONNECTION_CODES,
] as const;
export type EgressReason = (typeof EGRESS_REASONS)[number];

/**
 * One line of a session's egress log: a flow that ended, a refusal, a DNS question, or a request through a Connection, which
 * alone has the fields from `connection` to `is_sent`. Their meaning is that of ConnectionEntry.
 */
export const EgressEntry = z.object({
  machine_id: z.string(),
  /** Start of the flow, or time of the refusal or question: RFC 3339 with milliseconds. */
  at: z.string(),
  kind: z.enum(EGRESS_KINDS),
  /** The name that the guest asked for, if one is known. */
  host: z.string().max(255).optional(),
  address: z.string().optional(),
  port: z.int().optional(),
  /** Payload bytes of gateway flows, IP bytes of others. */
  bytes_out: z.int(),
  bytes_in: z.int(),
  verdict: z.enum(EGRESS_DECISIONS),
  reason: z.enum(EGRESS_REASONS),
  connection: z.string().max(63).optional(),
  /** Generation of the Connection that the request was sent under. */
  generation: z.int().optional(),
  method: z.string().max(32).optional(),
  path: z.string().max(1024).optional(),
  rule: z.int().optional(),
  status: z.int().optional(),
  is_unscanned: z.boolean().optional(),
  is_sent: z.boolean().optional(),
  /** How many alike events this line stands for; absent: one. */
  count: z.int().optional(),
});
export type EgressEntry = z.infer<typeof EgressEntry>;

export const Flows = z.object({
  entries: z.array(EgressEntry).max(1000),
  /** Lines that were dropped because too many came at once. */
  lost: z.int(),
  /** Sessions whose previews carried bytes since the previous call. */
  active_sessions: z.array(z.string()).max(10_000),
});
export type Flows = z.infer<typeof Flows>;
