/**
 * The behaviour of every implementation of contract/node with files, processes, terminals and the tunnel of a
 * machine.
 */
import { type ContractedNode, withMachine } from "./contracted-node.ts";
import { guestFiles } from "./guest/files.ts";
import { guestProcesses } from "./guest/processes.ts";
import { guestStreams } from "./guest/streams.ts";

export function guestContract(makeNode: () => Promise<ContractedNode>): void {
  const one = withMachine(makeNode, { hostname: "guest" });
  guestFiles(one);
  guestProcesses(one);
  guestStreams(one);
}
