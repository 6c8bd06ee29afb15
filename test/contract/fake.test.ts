import { FakeNode } from "@vivarium/contract/test-support/node";
import { nodeCaller } from "../support/node-caller.ts";
import { guestContract } from "./guest-contract.ts";
import { nodeContract } from "./node-contract.ts";
import { snapshotContract } from "./snapshot-contract.ts";
import { volumeContract } from "./volume-contract.ts";

async function fakeNode() {
  const fake = new FakeNode();
  await fake.listen();
  const makeUnfit = async (machineId: string) => fake.makeUnfit(machineId);
  const crash = async (machineId: string) => fake.endMachine(machineId, "its process ended unexpectedly");
  return { ...nodeCaller(fake.socketPath), close: () => fake.close(), makeUnfit, crash };
}

nodeContract(fakeNode);
guestContract(fakeNode);
snapshotContract(fakeNode, { hasMemory: false });
volumeContract(fakeNode, { hasFiles: false });
