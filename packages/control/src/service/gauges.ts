/** Metrics of the present state, read when they are collected. */
import { SESSION_STATES } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import { Counter, Gauge, type Registry } from "prom-client";
import { countByState } from "../sessions/store.ts";
import type { ServiceDeps } from "./deps.ts";

/** Destroyed sessions are history. */
const PRESENT = SESSION_STATES.filter((state) => state !== "destroyed");

type WarmMachines = NonNullable<NodeInfo["warm"]>[number];

interface Sample {
  labels: Record<string, string>;
  value: number;
}

/** A metric with labels whose samples are read at each collection. */
function collected(kind: typeof Gauge | typeof Counter, registers: Registry[]) {
  return (name: string, help: string, labelNames: string[], read: () => Promise<Sample[]>) => {
    new kind({
      name,
      help,
      labelNames,
      registers,
      async collect() {
        const samples = await read();
        this.reset();
        for (const { labels, value } of samples) this.inc(labels, value);
      },
    });
  };
}

export function addGauges({ db, node, meter }: ServiceDeps): void {
  const registers = [meter.registry];
  const gauge = collected(Gauge, registers);
  const counter = collected(Counter, registers);
  new Gauge({
    name: "vivarium_node_up",
    help: "1 while the node answers; without it, what the node says is left out",
    registers,
    async collect() {
      this.set((await node.present()) ? 1 : 0);
    },
  });
  gauge("vivarium_sessions", "Sessions of all organisations, by state", ["state"], async () => {
    const counts = await countByState(db).catch(() => undefined);
    return counts ? PRESENT.map((state) => ({ labels: { state }, value: counts.get(state) ?? 0 })) : [];
  });
  const readWarm = (countOf: (warm: WarmMachines) => number) => async () =>
    ((await node.present())?.warm ?? []).map((one) => {
      const { template, size, snapshot_id: id } = one;
      const labels = { kind: id === undefined ? "baseline" : "saved", template, size };
      return { labels, value: countOf(one) };
    });
  gauge(
    "vivarium_warm_machines",
    "Machines that wait for the next create; kind: baseline, or saved for templates and checkpoints of users",
    ["kind", "template", "size"],
    readWarm(({ ready }) => ready),
  );
  gauge(
    "vivarium_warm_machines_wanted",
    "How many are to wait, by how often one was wanted lately; labels as of vivarium_warm_machines",
    ["kind", "template", "size"],
    readWarm(({ wanted = 0 }) => wanted),
  );
  counter(
    "vivarium_new_machines_total",
    "Starts of new machines since the node started; from: pool where one waited, load where none did",
    ["from"],
    async () => {
      const { from_pool: pool, loaded: load } = (await node.present())?.new_machines ?? {};
      return samplesOf("from", { pool, load });
    },
  );
  gauge("vivarium_node_disk_bytes", "The node's storage pool", ["of"], async () => {
    const { free_bytes: free, total_bytes: total } = (await node.present())?.disk ?? {};
    return samplesOf("of", { free, total });
  });
}

/** One sample for each value of the label that is known. */
function samplesOf(label: string, values: Record<string, number | undefined>): Sample[] {
  return Object.entries(values).flatMap(([name, value]) =>
    value === undefined ? [] : [{ labels: { [label]: name }, value }],
  );
}
