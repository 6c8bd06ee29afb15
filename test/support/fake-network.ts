/** The network of the fake node: what it was told, as if kernel and gateway had confirmed it, and no traffic at all. */
import { type NetworkReport, NetworkSpec, PreviewTable } from "@vivarium/contract/node";
import { alive, type FakeState, Refusal, valid } from "./fake-machine.ts";

export interface FakeNetwork {
  /** What each machine was told after its start. */
  specs: Map<string, NetworkSpec>;
  previews: PreviewTable;
}

export function noNetwork(): FakeNetwork {
  return { specs: new Map(), previews: { version: 0, routes: [] } };
}

export function putNetwork(
  state: FakeState & { network: FakeNetwork },
  machineId: string,
  body: unknown,
): { generation: number } {
  const machine = alive(state, machineId);
  const spec = valid(NetworkSpec.safeParse(body));
  const known = state.network.specs.get(machineId) ?? machine.spec.network;
  if (known && known.generation > spec.generation)
    throw new Refusal("network_conflict", `the machine has generation ${known.generation} already`);
  state.network.specs.set(machineId, spec);
  return { generation: spec.generation };
}

export function putPreviews(network: FakeNetwork, body: unknown): { version: number } {
  const table = valid(PreviewTable.safeParse(body));
  if (network.previews.version > table.version)
    throw new Refusal("network_conflict", `version ${network.previews.version} is known already`);
  network.previews = table;
  return { version: table.version };
}

export function networkReport(state: FakeState): NetworkReport {
  const counters = [...state.machines.keys()].map((machine_id) => ({
    machine_id,
    egress_bytes: 0,
    ingress_bytes: 0,
    dropped_packets: 0,
    is_capped: false,
  }));
  return { counters, entries: [], lost: 0, cursor: "0", active_sessions: [] };
}
