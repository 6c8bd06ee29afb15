import { startFakeNode } from "../support/fake-node.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { guestContract } from "./guest-contract.ts";
import { nodeContract } from "./node-contract.ts";
import { snapshotContract } from "./snapshot-contract.ts";

async function fakeNode() {
  const fake = await startFakeNode();
  return { ...nodeCaller(fake.socketPath), close: fake.close };
}

nodeContract(fakeNode);
guestContract(fakeNode);
snapshotContract(fakeNode, { hasMemory: false });
