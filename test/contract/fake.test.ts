import { startFakeNode } from "../support/fake-node.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { nodeContract } from "./node-contract.ts";

nodeContract(async () => {
  const fake = await startFakeNode();
  return { ...nodeCaller(fake.socketPath), close: fake.close };
});
