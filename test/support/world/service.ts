/**
 * Boots one service for all network tests of a run. It asks the world's name server, whichever world there is: each test
 * file has one of its own. Two of these runs have no place in one network: run them with `scripts/in-own-network`.
 */
import type { TestProject } from "vitest/node";
import { type Service, startService } from "../service.ts";
import { PUBLIC } from "./addresses.ts";

let service: Service | undefined;

export async function setup(project: TestProject): Promise<void> {
  service = await startService({ env: { VIV_RESOLVERS: PUBLIC.resolver } });
  project.provide("services", [service.facts]);
}

export async function teardown(): Promise<void> {
  await service?.stop();
}
