/**
 * Starts one service for all network tests of a run. Its name server is that of the current world: each test file has a
 * world of its own. Two such runs conflict in one network: use `scripts/in-own-network`.
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
