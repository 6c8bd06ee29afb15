/** Tries again to remove machines that could not be removed, so that their slots serve again without a restart. */
import { repeatAfter } from "@vivarium/kit/clock";
import type { MachineDeps } from "./deps.ts";
import { stopMachine } from "./stop.ts";

const RETRY_MS = 30_000;

export async function removeLeftovers(
  deps: Pick<MachineDeps, "config" | "namespaces" | "table" | "log">,
  until: AbortSignal,
  everyMs = RETRY_MS,
): Promise<void> {
  const { table } = deps;
  await repeatAfter(everyMs, until, async () => {
    for (const id of [...table.leftover]) {
      // A new start under this id removes them itself, and its machine must not be stopped after that.
      if (!table.leftover.has(id) || table.starting.has(id)) continue;
      // The stop has logged what is left.
      await stopMachine(deps, id).catch(() => {});
    }
  });
}
