import { startFakeNode } from "../support/fake-node.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { guestContract } from "./guest-contract.ts";
import { nodeContract } from "./node-contract.ts";
import { snapshotContract } from "./snapshot-contract.ts";

async function fakeNode() {
  const fake = await startFakeNode();
  const makeUnfit = async (machineId: string) => fake.makeUnfit(machineId);
  return { ...nodeCaller(fake.socketPath), close: fake.close, makeUnfit };
}

nodeContract(fakeNode);
guestContract(fakeNode);
snapshotContract(fakeNode, { hasMemory: false });
