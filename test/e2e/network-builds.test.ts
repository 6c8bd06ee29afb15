/** Builds of the real node, which pulls from real registries, by the contract that the fake node passes too. */
import { afterAll, beforeAll } from "vitest";
import { type BuildingNode, buildContract } from "../contract/build-contract.ts";
import { eventually } from "../support/eventually.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { type Registries, startRegistries } from "../support/registries.ts";
import { type Service, servicePid, startService, suspendControl } from "../support/service.ts";
import { makeSmallImage } from "../support/small-image.ts";

const BACK_MS = 60_000;

let registries: Registries;
let service: Service;
let control: { resume: () => void } | undefined;

beforeAll(async () => {
  registries = await startRegistries({
    "team/app": makeSmallImage("app"),
    "team/other": makeSmallImage("other"),
  });
  service = await startService({ env: registries.env });
  // Control removes builds that no row of its own names.
  control = suspendControl(service.facts);
});
afterAll(async () => {
  control?.resume();
  await service?.stop();
  await registries?.close();
});

async function restart(): Promise<void> {
  const before = servicePid(service.facts, "node");
  process.kill(before, "SIGKILL");
  await eventually(async () => {
    if (servicePid(service.facts, "node") === before) throw new Error("the daemon has not ended");
    await nodeCaller(service.facts.nodeSocket).call("GET", "/v1/info");
  }, BACK_MS);
}

async function realNode(): Promise<BuildingNode> {
  const { open, closed, credential } = registries;
  return {
    ...nodeCaller(service.facts.nodeSocket),
    restart,
    holdBuilds: () => registries.hold(),
    images: {
      open: `${open}/team/app:1`,
      other: `${open}/team/other:1`,
      missing: `${open}/team/missing:1`,
      closed: { reference: `${closed}/team/app:1`, credential },
    },
  };
}

buildContract(realNode, { withinMs: 400_000, pollMs: 250 });
