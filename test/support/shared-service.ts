import { inject } from "vitest";
import type { ServiceFacts } from "./service.ts";

/** The running service that this test file shares with the files before and after it, not with those beside it. */
export function sharedService(): ServiceFacts {
  // From 1 to the number of files that run at a time.
  const place = Number(process.env.VITEST_POOL_ID);
  const service = inject("services")[place - 1];
  if (!service)
    throw new Error(
      `there is no service at place ${place} of this run: it is started by the projects e2e and network`,
    );
  return service;
}
