/** Dependencies of the egress functions. */
import type { Log } from "@vivarium/kit/log";
import type { AuditDeps } from "../audit/append.ts";
import type { Database } from "../db/pool.ts";
import type { Activity } from "../deadlines/activity.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import type { OwnHosts } from "./entry.ts";
import type { EgressCaps } from "./org-cap.ts";
import type { NetworkReports } from "./reports.ts";

export interface EgressDeps extends AuditDeps {
  db: Database;
  nodes: NodeClient;
  signals: SessionSignals;
  activity: Activity;
  ownHosts: OwnHosts;
  egressCaps: EgressCaps;
  networkReports: NetworkReports;
  /** Sends the routes of previews to the gateway. */
  previewPush: { attempt(logged: { session_id: string }): Promise<void> };
  log: Log;
}
