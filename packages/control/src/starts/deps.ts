import type { OwnHosts } from "../egress/entry.ts";
import type { EgressCaps } from "../egress/org-cap.ts";
import type { NodeState } from "../fleet/node-state.ts";
import type { MoveDeps } from "../moves/deps.ts";
import type { Provisioner } from "./provision.ts";

export interface StartDeps extends MoveDeps {
  pepper: Buffer;
  node: NodeState;
  provisioner: Provisioner;
  ownHosts: OwnHosts;
  egressCaps: EgressCaps;
}
