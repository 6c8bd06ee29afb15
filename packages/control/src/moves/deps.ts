import type { ObjectStore } from "@vivarium/objects/store";
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
  objects: ObjectStore;
  /** The directory of this host that archives of the warm tier are in: `objects` itself, if that is no bucket. */
  localObjects: ObjectStore;
  /** Whether saved states are kept in the object store, too. */
  hasArchives: boolean;
  /** Whether unused saved states are packed into `localObjects` when the node's disk is nearly full. */
  hasWarmTier: boolean;
  /** Every pause waits for its archive, or is refused: see `archive-first.ts`. */
  requireDurablePause: boolean;
  /** Stops provisioning of a session that was destroyed. */
  provisioner: { cancel(sessionId: string): void };
}
