/**
 * The node's state for its gateway: whole tables with a version, sent at every change. The gateway keeps nothing else.
 */
import { z } from "zod";
import { EGRESS_MODES } from "../api/egress.ts";

/** Ports on a slot's host address that the gateway listens on; the slot's namespace sends a guest's traffic there. */
export const GATEWAY_PORTS = { dns: 15_053, http: 15_080, tls: 15_443 } as const;

/** Entries in their normalised form: `host`, `*.host`, `IPv4`, each with `:port` or without. */
export const EgressRules = z.object({ mode: z.enum(EGRESS_MODES), allow: z.array(z.string()).max(256) });
export type EgressRules = z.infer<typeof EgressRules>;

/** One machine's end on the host's side of the network. */
export const GatewaySlot = z.object({
  /** Where the gateway listens for this machine and for no other. */
  host_address: z.ipv4(),
  /** Where the gateway reaches the machine's exposed ports. */
  machine_address: z.ipv4(),
  /** Absent while the slot has no machine: every connection is refused. */
  machine: z
    .object({
      machine_id: z.string(),
      session_id: z.string(),
      generation: z.int().min(1),
      egress: EgressRules,
    })
    .optional(),
});
export type GatewaySlot = z.infer<typeof GatewaySlot>;

/** Why a preview cannot be answered by a machine right now; `live` and `paused` can be. */
export const PREVIEW_STATES = ["live", "paused", "gone", "unavailable"] as const;

/** An exposed port. Secrets are hashes: SHA-256, hex. */
export const PreviewRoute = z.object({
  session_id: z.string(),
  port: z.int().min(1).max(65_535),
  /** Renewed whenever a credential or a gate of the route changes: cookies and sockets of an older one are dead. */
  version: z.int().min(1),
  visibility: z.enum(["token", "public"]),
  /** On `token` routes. */
  token_sha256: z.string().optional(),
  /** On routes with `auth: bearer`. */
  bearer_sha256: z.string().optional(),
  /** Key of the gate cookie's MAC, 32 bytes, hex. */
  cookie_key: z.string(),
  login_url: z.string().optional(),
  wake_on_http: z.boolean(),
  /**
   * `paused`: woken by a request; `gone`: can never be woken (410); `unavailable`: its node is away (503). With `live`
   * the machine's address is that of the slot whose machine has this session.
   */
  state: z.enum(PREVIEW_STATES),
});
export type PreviewRoute = z.infer<typeof PreviewRoute>;

export const GatewayTables = z.object({
  /** Grows with every change; restarts with the node's process. */
  version: z.int().min(1),
  slots: z.array(GatewaySlot),
  routes: z.array(PreviewRoute),
  /** IPv4 ranges, `a.b.c.d/n`, that nothing dials for a guest: private, metadata, this deployment's own. */
  never: z.array(z.string()),
  /** Name servers to ask, `address` or `address:port`. */
  resolvers: z.array(z.string()).min(1),
});
export type GatewayTables = z.infer<typeof GatewayTables>;
