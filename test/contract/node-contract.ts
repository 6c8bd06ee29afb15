/**
 * The behaviour of every implementation of contract/node, written once. The fake node must pass it in the unit tests,
 * the real daemon in the end-to-end tests.
 */
import { type ContractedNode, withMachine } from "./contracted-node.ts";
import { execs } from "./node/execs.ts";
import { nodeItself } from "./node/itself.ts";
import { machines } from "./node/machines.ts";
import { networks } from "./node/networks.ts";
import { ownFiles } from "./node/own-files.ts";

export function nodeContract(makeNode: () => Promise<ContractedNode>): void {
  const network = { generation: 1, egress: { mode: "allow", allow: [] }, exposed: [] };
  const one = withMachine(makeNode, { network });
  nodeItself(one);
  machines(one);
  execs(one);
  ownFiles(one);
  networks(one);
}
