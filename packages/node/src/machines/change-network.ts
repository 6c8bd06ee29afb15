import type { NetworkSpec } from "@vivarium/contract/node";
import type { MachineDeps } from "./deps.ts";

/** Changes a machine's network policy. Waits for a start in progress; a held machine gets it before it continues. */
export async function changeNetwork(
  { table, network }: Pick<MachineDeps, "table" | "network">,
  id: string,
  spec: NetworkSpec,
): Promise<void> {
  await table.starting.get(id)?.done.catch(() => {});
  table.get(id);
  await network.networks.change(id, spec);
}
