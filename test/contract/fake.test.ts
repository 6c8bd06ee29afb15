import { FakeNode } from "@vivarium/contract/test-support/node";
import { nodeCaller } from "../support/node-caller.ts";
import { archivesContract } from "./archives-contract.ts";
import { type BuildingNode, buildContract } from "./build-contract.ts";
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

/** Registries of the fake node. */
async function fakeBuilder(): Promise<BuildingNode> {
  const fake = new FakeNode();
  await fake.listen();
  const login = { username: "robot$ci", password: "canary-of-a-registry" };
  fake.images.set("docker.io/library/open:1", { layers: [100, 20] });
  fake.images.set("docker.io/library/other:1", { layers: [3] });
  fake.images.set("ghcr.io/owner/closed:1", { layers: [7], login });
  return {
    ...nodeCaller(fake.socketPath),
    close: () => fake.close(),
    restart: () => fake.restart(),
    holdBuilds: () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      fake.onBuild = () => promise;
      return resolve;
    },
    images: {
      open: "docker.io/library/open:1",
      other: "docker.io/library/other:1",
      missing: "docker.io/library/missing:1",
      closed: { reference: "ghcr.io/owner/closed:1", credential: { registry: "ghcr.io", ...login } },
    },
  };
}

nodeContract(fakeNode);
guestContract(fakeNode);
snapshotContract(fakeNode, { hasMemory: false });
volumeContract(fakeNode, { hasFiles: false });
archivesContract(fakeNode, { hasSmallBaselines: true });
buildContract(fakeBuilder, { withinMs: 10_000, pollMs: 5 });
