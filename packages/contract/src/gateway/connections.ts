/**
 * Connections: what the gateway must know to inject a credential into requests of one session to one origin, and what it
 * reports of their use. Hazard: `SessionConnections` has credentials in the clear. It is sent over the socket between node
 * and gateway and kept in memory; it is never part of the tables, of a journal or of any file.
 */
import { z } from "zod";

/** Most Connections of a session, those that ended included. */
export const MAX_CONNECTIONS = 16;

/** Certificate authority of one session, which its guest trusts. The key is never in the guest. */
export const SessionCa = z.object({ certificate_pem: z.string(), key_pem: z.string() });
export type SessionCa = z.infer<typeof SessionCa>;

/** The header that carries the credential: `Authorization` and `Bearer …`, or a name of the caller's with the bare secret. */
export const InjectedHeader = z.object({
  name: z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/),
  /** Visible ASCII, with single spaces inside. */
  value: z
    .string()
    .regex(/^[\x21-\x7e]+(?: [\x21-\x7e]+)*$/)
    .max(8_300),
});
export type InjectedHeader = z.infer<typeof InjectedHeader>;

export const BoundConnection = z.object({
  name: z.string().max(63),
  /** Normalised name of the origin, whose port is 443. */
  host: z.string().max(253),
  /** Upper-case tokens. An empty list allows nothing. */
  methods: z.array(z.string()).max(16),
  /** Path patterns as in the specification. An empty list allows nothing. */
  paths: z.array(z.string()).max(64),
  header: InjectedHeader,
  /** Raised at every replacement of the Connection. What runs under an older one is cut. */
  generation: z.int().min(1),
  /** RFC 3339. */
  expires_at: z.iso.datetime({ offset: true }),
});
export type BoundConnection = z.infer<typeof BoundConnection>;

/** A Connection without a credential: all requests to its origin are refused with 403. */
export const ConnectionTombstone = z.object({
  name: z.string().max(63),
  host: z.string().max(253),
  /** `revoked` is final. The others end with a `BoundConnection` of a higher generation. */
  state: z.enum(["revoked", "expired", "suspended"]),
});
export type ConnectionTombstone = z.infer<typeof ConnectionTombstone>;

/** All Connections of one session. Replaces what the gateway knew of it. */
export const SessionConnections = z.object({
  session_id: z.string(),
  /** Grows with every change of the session's Connections. An older one that arrives late is ignored. */
  version: z.int().min(1),
  ca: SessionCa,
  connections: z.array(BoundConnection).max(MAX_CONNECTIONS),
  tombstones: z.array(ConnectionTombstone).max(MAX_CONNECTIONS),
});
export type SessionConnections = z.infer<typeof SessionConnections>;

/** Codes of refused requests; the guest gets them as `code`. */
export const CONNECTION_CODES = [
  "connection_rule_denied",
  "connection_request_invalid",
  "connection_expired",
  "connection_revoked",
  "connection_suspended",
  "connection_upstream",
  "egress_denied",
] as const;
export type ConnectionCode = (typeof CONNECTION_CODES)[number];

/**
 * One request through a Connection. `used`: it was sent with the credential. `denied`: it was refused, and nothing of it
 * was sent. `failed`: it was sent at most in part, and the guest got `connection_upstream` or its connection was cut.
 * `reflected`: the answer carried the credential.
 */
export const ConnectionEntry = z.object({
  session_id: z.string(),
  /** RFC 3339 with milliseconds: when the request arrived. */
  at: z.string(),
  connection: z.string(),
  /** Generation of the Connection that the request was sent under. */
  generation: z.int().optional(),
  host: z.string(),
  event: z.enum(["used", "denied", "failed", "reflected"]),
  method: z.string().max(32),
  /** Without the query. */
  path: z.string().max(1024),
  /** Status of the origin's answer. */
  status: z.int().optional(),
  code: z.enum(CONNECTION_CODES).optional(),
  /** Whether the request had a connection to the origin, over which the credential may have left. Absent from older gateways. */
  is_sent: z.boolean().optional(),
  /** Index of the path pattern that allowed the request. */
  rule: z.int().optional(),
  /** Bytes of the bodies. */
  bytes_out: z.int(),
  bytes_in: z.int(),
  /** The answer's body has a coding that the gateway cannot read: it was not searched. */
  is_unscanned: z.boolean().optional(),
});
export type ConnectionEntry = z.infer<typeof ConnectionEntry>;
