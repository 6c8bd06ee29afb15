/** The network of the fake node: takes effect at once, without kernel and gateway, and has no traffic. */
import { isDeepStrictEqual } from "node:util";
import { type MachineCounters, type NetworkReport, NetworkSpec, PreviewTable } from "@vivarium/contract/node";
import { alive } from "./machine-table.ts";
import { Refusal, valid } from "./refusal.ts";
import type { NodeState } from "./state.ts";

/** Network of a machine that was started without one. */
const OPEN: NetworkSpec = { generation: 1, egress: { mode: "allow", allow: [] }, exposed: [] };

export async function putNetwork(
  state: NodeState,
  machineId: string,
  body: unknown,
): Promise<{ generation: number }> {
  const spec = valid(NetworkSpec.safeParse(body));
  await state.starting.get(machineId)?.done.catch(() => {});
  alive(state, machineId);
  const { generation } = spec;
  const known = state.networks.get(machineId) ?? OPEN;
  if (known.generation > generation || (known.generation === generation && !isDeepStrictEqual(known, spec)))
    throw new Refusal("network_conflict", `generation ${generation} came after ${known.generation}`);
  await state.onNetwork(machineId, spec);
  state.networks.set(machineId, spec);
  return { generation };
}

export async function putPreviews(state: NodeState, body: unknown): Promise<{ version: number }> {
  const table = valid(PreviewTable.safeParse(body));
  const { version, routes } = state.previews;
  if (version > table.version || (version === table.version && !isDeepStrictEqual(routes, table.routes)))
    throw new Refusal("network_conflict", `version ${table.version} came after ${version}`);
  await state.onPreviews(table);
  state.previews = table;
  return { version: table.version };
}

/** The next report. Log lines and used previews are repeated until a call confirms them by their cursor. */
export function networkReport(state: NodeState, after: string | null): NetworkReport {
  state.reportCount += 1;
  if (after === state.report.cursor)
    state.report = { ...state.report, entries: [], lost: 0, active_sessions: [] };
  if (state.isScripted) return state.report;
  const { counters } = state.report;
  const others = [...state.machines.values()].filter(
    ({ machine_id, state: of }) =>
      of !== "ended" && counters.every((counted) => counted.machine_id !== machine_id),
  );
  return { ...state.report, counters: [...counters, ...others.map(({ machine_id }) => silent(machine_id))] };
}

const silent = (machine_id: string): MachineCounters => ({
  machine_id,
  egress_bytes: 0,
  ingress_bytes: 0,
  dropped_packets: 0,
  is_capped: false,
});
