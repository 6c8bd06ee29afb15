import type { Activity } from "../deadlines/activity.ts";
import type { NetworkReports } from "../egress/reports.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import type { FrameDeps } from "../operations/frame.ts";

/** Dependencies of moves, and of the folders above. */
export interface MoveDeps extends FrameDeps {
  nodes: NodeClient;
  activity: Activity;
  networkReports: NetworkReports;
  /** Refuse requests to pause and skip idle pauses: no storage tier can make them durable beyond their node yet. */
  requireDurablePause: boolean;
  /** Stops provisioning of a session that was destroyed. */
  provisioner: { cancel(sessionId: string): void };
}
