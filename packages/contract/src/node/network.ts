/**
 * Calls of control to a node about the network of its machines (calls.ts has the others):
 *
 *   PUT    /v1/machines/{machine_id}/network      → 200 {generation}, once kernel and gateway have it and every flow that it
 *          NetworkSpec                              does not allow is cut. A generation older than the machine's: 409. When the
 *                                                   gateway cannot confirm within 5 s: network_unconfirmed (503); the spec
 *                                                   is kept, and applied later
 *   PUT    /v1/previews  PreviewTable             → 200 {version}, once it is on the node's disk and the gateway confirmed it;
 *                                                   replaces all routes of this node. An older version than the node's, or
 *                                                   the same with other routes: 409. network_unconfirmed likewise
 *   PUT    /v1/connections  ConnectionLease      → 200 ConnectionsWanted. Renews the lease: without it for 20 s the gateway
 *                                                   injects nothing. Sessions that are not listed are forgotten
 *   PUT    /v1/connections/{session_id}           → 200 ConnectionsKept, once the gateway confirmed it, or at once if no machine of
 *          SessionConnections                       the session is here. An older version than the node's is ignored, and
 *                                                   the answer has the node's. When the gateway cannot confirm within 5 s:
 *                                                   network_unconfirmed; it is kept. Held in memory alone: a new process
 *                                                   of the node knows none
 *   DELETE /v1/connections/{session_id}           → 204, once the gateway confirmed that it has none of this session, which
 *                                                   has ended; at once if no machine of it is here. Later ones are ignored
 *                                                   while its machine runs. network_unconfirmed as above
 *   GET    /v1/network/report?after=<cursor>      → 200 NetworkReport, at once: counters of all machines that run or ended within
 *                                                   the last minute (a reading is up to 2 s old), and log
 *                                                   lines after the cursor, at most 5,000; kept until a request has a later
 *                                                   cursor, at most 50,000, the oldest dropped and counted
 *   GET    /v1/wakes                              → 200 {wakes: Wake[]}: pending wake requests of visitors; waits up to 20 s
 *                                                   for one. A request is sent again after 10 s, until it is answered
 *                                                   or its visitors have gone
 *   POST   /v1/wakes/{wake_id}  WakeOutcome       → 204
 *
 * The node keeps previews over a restart, unless its file is damaged: see NodeInfo.previews_version (0: none).
 */
import { z } from "zod";
import { EgressEntry, WakeOutcome } from "../gateway/calls.ts";
import { MAX_CONNECTIONS, SessionConnections } from "../gateway/connections.ts";
import { EgressRules, PreviewRoute } from "../gateway/tables.ts";

/** The whole network policy of one machine. */
export const NetworkSpec = z.object({
  /** Grows with every change of the session's policy. */
  generation: z.int().min(1),
  egress: EgressRules,
  /** Guest ports of previews. */
  exposed: z.array(z.int().min(1).max(65_535)).max(32),
  /** Cap on the machine's `egress_bytes` (MachineCounters), past which nothing leaves any more. Absent: no cap. */
  egress_limit_bytes: z.int().min(0).optional(),
  /**
   * Hosts of the session's Connections, those that were revoked included: all its TCP to port 443 goes through the gateway,
   * also in mode `allow`, and its UDP to port 443 is refused. Absent: it never had one.
   */
  bound_hosts: z.array(z.string()).min(1).max(MAX_CONNECTIONS).optional(),
});
export type NetworkSpec = z.infer<typeof NetworkSpec>;

/** Every session that has Connections and may have a machine, with the newest version of them. */
export const ConnectionLease = z.object({
  sessions: z.array(z.object({ session_id: z.string(), version: z.int().min(1) })),
});
export type ConnectionLease = z.infer<typeof ConnectionLease>;

/** The version of a session's Connections that the node has, and whether it has a lease for its gateway, too. */
export const ConnectionsKept = z.object({ version: z.int().min(1), is_leased: z.boolean() });
export type ConnectionsKept = z.infer<typeof ConnectionsKept>;

/** Those of which the node has another version: none, an older one, or a newer one. */
export const ConnectionsWanted = z.object({ session_ids: z.array(z.string()) });
export type ConnectionsWanted = z.infer<typeof ConnectionsWanted>;

export const PreviewTable = z.object({ version: z.int().min(1), routes: z.array(PreviewRoute) });
export type PreviewTable = z.infer<typeof PreviewTable>;

export const Wake = z.object({ wake_id: z.string(), session_id: z.string() });
export type Wake = z.infer<typeof Wake>;

/** Bytes are IP bytes as the machine's kernel table counted them since its start; they never decrease. */
export const MachineCounters = z.object({
  machine_id: z.string(),
  egress_bytes: z.int(),
  ingress_bytes: z.int(),
  dropped_packets: z.int(),
  /** Whether `limit_bytes` has cut a packet. */
  is_capped: z.boolean(),
  /** The `egress_limit_bytes` that `is_capped` refers to. */
  limit_bytes: z.int().optional(),
});
export type MachineCounters = z.infer<typeof MachineCounters>;

export const NetworkReport = z.object({
  counters: z.array(MachineCounters),
  entries: z.array(EgressEntry),
  lost: z.int(),
  cursor: z.string(),
  /** Sessions whose previews were used since the previous report. */
  active_sessions: z.array(z.string()),
});
export type NetworkReport = z.infer<typeof NetworkReport>;

export { SessionConnections, WakeOutcome };
