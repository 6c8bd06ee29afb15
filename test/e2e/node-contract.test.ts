import { afterAll, beforeAll } from "vitest";
import { nodeContract } from "../contract/node-contract.ts";
import { service } from "../support/http.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { suspendControl } from "../support/service.ts";

// Control soon removes snapshots that no row of its own names.
let control: { resume: () => void };
beforeAll(() => {
  control = suspendControl(service);
});
afterAll(() => control.resume());

nodeContract(async () => nodeCaller(service.nodeSocket));
