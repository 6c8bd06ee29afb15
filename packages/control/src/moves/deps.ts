import type { Activity } from "../deadlines/activity.ts";
import type { NetworkReports } from "../egress/reports.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import type { FrameDeps } from "../operations/frame.ts";

/** What moves need, and so the rooms above them. */
export interface MoveDeps extends FrameDeps {
  nodes: NodeClient;
  activity: Activity;
  networkReports: NetworkReports;
  /** Pauses must be durable beyond their node; there is no tier that could do it yet. */
  requireDurablePause: boolean;
  /** Provisions sessions in this process; a destroyed one needs no machine any more. */
  provisioner: { cancel(sessionId: string): void };
}
