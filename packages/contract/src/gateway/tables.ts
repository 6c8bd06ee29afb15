/** The node's tables for its gateway, sent whole and with a new version at every change. */
import { z } from "zod";
import { EGRESS_MODES } from "../api/egress.ts";

/** Ports on a slot's host address where the gateway listens. The slot's namespace redirects a guest's traffic there. */
export const GATEWAY_PORTS = { dns: 15_053, http: 15_080, tls: 15_443 } as const;

/** Normalised entries: `host`, `*.host`, `IPv4`, each with or without `:port`. */
export const EgressRules = z.object({ mode: z.enum(EGRESS_MODES), allow: z.array(z.string()).max(256) });
export type EgressRules = z.infer<typeof EgressRules>;

/** A slot: the addresses of one machine on the host's side of the network. */
export const GatewaySlot = z.object({
  /** Address at which the gateway listens for this machine alone. */
  host_address: z.ipv4(),
  /** Address at which the gateway reaches the machine's exposed ports. */
  machine_address: z.ipv4(),
  /** Absent while the slot is prepared and has no machine. All its traffic is refused then. */
  machine: z
    .object({
      machine_id: z.string(),
      session_id: z.string(),
      generation: z.int().min(1),
      egress: EgressRules,
      /**
       * Normalised hosts of the session's Connections, those that ended included; absent: none. A host that is listed here
       * is not reached over TLS until the gateway has the session's Connections.
       */
      bound_hosts: z.array(z.string()).max(16).optional(),
    })
    .optional(),
});
export type GatewaySlot = z.infer<typeof GatewaySlot>;

/** The state of the session behind a preview. Only `live` and `paused` can be answered by a machine. */
export const PREVIEW_STATES = ["live", "paused", "gone", "unavailable"] as const;

/** An exposed port. Secrets are hashes: SHA-256, hex. */
export const PreviewRoute = z.object({
  session_id: z.string(),
  port: z.int().min(1).max(65_535),
  /** Raised when a credential or check of the route changes: cookies and sockets of older versions become invalid. */
  version: z.int().min(1),
  visibility: z.enum(["token", "public"]),
  /** Hash of the token in the URL; present on `token` routes. */
  token_sha256: z.string().optional(),
  /** Hash of the bearer token; present on routes with `auth: bearer`. */
  bearer_sha256: z.string().optional(),
  /** Key of the gate cookie's MAC, 32 bytes, hex. */
  cookie_key: z.string(),
  login_url: z.string().optional(),
  wake_on_http: z.boolean(),
  /**
   * `paused`: a request wakes the session; `gone`: it can never be woken (410); `unavailable`: it is still being
   * created (503). With `live` the machine's address is that of the slot whose machine has this session.
   */
  state: z.enum(PREVIEW_STATES),
});
export type PreviewRoute = z.infer<typeof PreviewRoute>;

export const GatewayTables = z.object({
  /** Grows with every change; starts again with the node's process. */
  version: z.int().min(1),
  slots: z.array(GatewaySlot),
  routes: z.array(PreviewRoute),
  /** IPv4 ranges, `a.b.c.d/n`, that are never dialled for a guest: private, metadata, this deployment's own. */
  never: z.array(z.string()),
  /** TCP ports in these ranges that the operator opened all the same. Absent: none. */
  open: z.array(z.object({ range: z.string(), port: z.int().min(1).max(65_535) })).optional(),
  /** Name servers to use, `address` or `address:port`. */
  resolvers: z.array(z.string()).min(1),
});
export type GatewayTables = z.infer<typeof GatewayTables>;
