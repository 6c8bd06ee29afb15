import { afterAll, beforeAll } from "vitest";
import { archivesContract } from "../contract/archives-contract.ts";
import { service } from "../support/http.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { suspendControl } from "../support/service.ts";

// Control soon removes snapshots that no row of its own names.
let control: { resume: () => void };
beforeAll(() => {
  control = suspendControl(service);
});
afterAll(() => control.resume());

archivesContract(async () => nodeCaller(service.nodeSocket), { hasSmallBaselines: false });
