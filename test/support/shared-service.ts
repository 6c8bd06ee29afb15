import { inject } from "vitest";
import type { ServiceFacts } from "./service.ts";

/** The service of this vitest worker: shared by test files that run one after the other, not by concurrent ones. */
export function sharedService(): ServiceFacts {
  // Number of the vitest worker, from 1.
  const place = Number(process.env.VITEST_POOL_ID);
  const service = inject("services")[place - 1];
  if (!service)
    throw new Error(
      `there is no service at place ${place} of this run: it is started by the projects e2e and network`,
    );
  return service;
}
