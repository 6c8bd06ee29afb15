import type { Activity } from "../deadlines/activity.ts";
import type { NetworkReports } from "../egress/reports.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import type { FrameDeps } from "../operations/frame.ts";
import type { Keyring } from "../secrets/keyring.ts";
import type { CeilingDeps } from "../sessions/slots.ts";
import type { StartGate } from "../sessions/start-gate.ts";

/** Dependencies of moves. Folders on higher floors (ARCHITECTURE.md) extend them. */
export interface MoveDeps extends FrameDeps, CeilingDeps {
  nodes: NodeClient;
  activity: Activity;
  networkReports: NetworkReports;
  startGate: StartGate;
  keyring: Keyring;
  /**
   * Refuses pause requests, and skips pauses for idleness and detach: no archive can store them outside of their node.
   * Pauses for `max_lifetime`, `continuous_live_limit` and the organisation's egress cap are carried out regardless.
   */
  requireDurablePause: boolean;
  /** Stops provisioning of a session that was destroyed. */
  provisioner: { cancel(sessionId: string): void };
}
