import { identify } from "@vivarium/kit/process-identity";
import { expect, test } from "vitest";
import { endingOf } from "./reconcile.ts";

test("a machine that does not run says whether its host went down or only its process", () => {
  const process = { ...identify(globalThis.process.pid), pid: 1, startTicks: "1" };
  const notKilled = () => undefined;
  expect(endingOf({ process: { ...process, bootId: "of-another-boot" } }, notKilled)).toEqual({
    reason: "its host restarted",
    cause: "host_restart",
  });
  for (const other of [process, { ...process, bootId: undefined }, undefined])
    expect(endingOf({ process: other }, notKilled)).toEqual({
      reason: "its process ended while its node was down",
    });
  expect(endingOf({ process }, () => "it needed more memory than its limit")).toEqual({
    reason: "its process ended while its node was down: it needed more memory than its limit",
  });
});
