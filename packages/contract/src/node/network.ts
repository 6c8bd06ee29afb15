/**
 * Control → node, the network of machines (calls.ts has the other calls):
 *
 *   PUT    /v1/machines/{machine_id}/network      → 200 {generation}, once kernel and gateway have it and what it does not
 *          NetworkSpec                              allow is cut. A generation older than the machine's: 409. When the
 *                                                   gateway cannot confirm within 5 s: network_unconfirmed (503); the network
 *                                                   is kept and still being applied
 *   PUT    /v1/previews  PreviewTable             → 200 {version}, once it is on the node's disk and the gateway confirmed it;
 *                                                   replaces all routes of this node. An older version than the node's, or
 *                                                   the same with other routes: 409. network_unconfirmed likewise
 *   GET    /v1/network/report?after=<cursor>      → 200 NetworkReport, at once: counters of all machines that run or ended within
 *                                                   the last minute (a reading is up to 2 s old), and log
 *                                                   lines after the cursor, at most 5,000; kept until asked for with a later
 *                                                   cursor, at most 50,000, the oldest dropped and counted
 *   GET    /v1/wakes                              → 200 {wakes: Wake[]}: wake requests of visitors without an answer yet; waits up
 *                                                   to 20 s for one. A request is sent again 10 s later, until it is
 *                                                   answered or no visitor waits any more
 *   POST   /v1/wakes/{wake_id}  WakeOutcome       → 204
 *
 * The node keeps previews over a restart, unless its file is damaged: NodeInfo.previews_version is their version (0: none).
 */
import { z } from "zod";
import { EgressEntry, WakeOutcome } from "../gateway/calls.ts";
import { EgressRules, PreviewRoute } from "../gateway/tables.ts";

/** The whole network configuration of one machine. */
export const NetworkSpec = z.object({
  /** Grows with every change of the session's settings. */
  generation: z.int().min(1),
  egress: EgressRules,
  /** Guest ports that previews lead to. */
  exposed: z.array(z.int().min(1).max(65_535)).max(32),
  /** The machine's `egress_bytes` may not pass this; absent: no cap. Passed already: nothing leaves any more. */
  egress_limit_bytes: z.int().min(0).optional(),
});
export type NetworkSpec = z.infer<typeof NetworkSpec>;

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
  /** Whether its limit has cut something. */
  is_capped: z.boolean(),
  /** The `egress_limit_bytes` that this refers to. */
  limit_bytes: z.int().optional(),
});
export type MachineCounters = z.infer<typeof MachineCounters>;

export const NetworkReport = z.object({
  counters: z.array(MachineCounters),
  entries: z.array(EgressEntry),
  lost: z.int(),
  cursor: z.string(),
  /** Sessions whose previews were used since the report before. */
  active_sessions: z.array(z.string()),
});
export type NetworkReport = z.infer<typeof NetworkReport>;

export { WakeOutcome };
