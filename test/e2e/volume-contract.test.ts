import { afterAll, beforeAll } from "vitest";
import { volumeContract } from "../contract/volume-contract.ts";
import { service } from "../support/http.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { suspendControl } from "../support/service.ts";

// Control soon removes what no row of its own names.
let control: { resume: () => void };
beforeAll(() => {
  control = suspendControl(service);
});
afterAll(() => control.resume());

volumeContract(async () => nodeCaller(service.nodeSocket), { hasFiles: true });
