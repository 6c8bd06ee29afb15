/** Metrics of sessions and the node, read when Prometheus collects them. */
import { SESSION_STATES } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import { GIB } from "@vivarium/kit/sizes";
import { Counter, Gauge, type Registry } from "prom-client";
import type { NodeState } from "../fleet/node-state.ts";
import { JOB_KINDS, JOB_STATES } from "../jobs/kinds.ts";
import { countByState } from "../sessions/store.ts";
import { countBuilds } from "../templates/build-store.ts";
import { countVolumes } from "../volumes/store.ts";
import type { ServiceDeps } from "./deps.ts";
import { addObjectGauges } from "./object-gauges.ts";

/** States that are counted: destroyed sessions are left out. */
const PRESENT = SESSION_STATES.filter((state) => state !== "destroyed");

type WarmMachines = NonNullable<NodeInfo["warm"]>[number];

export function addGauges({ db, node, nodes, meter, jobs }: ServiceDeps): void {
  const registers = [meter.registry];
  new Gauge({
    name: "vivarium_sessions",
    help: "Sessions of all organisations, by state",
    labelNames: ["state"],
    registers,
    async collect() {
      const counts = await countByState(db).catch(() => undefined);
      this.reset();
      for (const state of counts ? PRESENT : []) this.set({ state }, counts?.get(state) ?? 0);
    },
  });
  new Gauge({
    name: "vivarium_volumes",
    help: "Volumes of all organisations; state: attached to a session, or free",
    labelNames: ["state"],
    registers,
    async collect() {
      const counts = await countVolumes(db).catch(() => undefined);
      this.reset();
      if (counts) this.set({ state: "attached" }, counts.attached);
      if (counts) this.set({ state: "free" }, counts.free);
    },
  });
  new Gauge({
    name: "vivarium_volume_bytes",
    help: "Volumes of all organisations: promised, the sum of their sizes; used, what they take on the node's disk",
    labelNames: ["of"],
    registers,
    async collect() {
      const counts = await countVolumes(db).catch(() => undefined);
      const volumes = await nodes.listVolumes().catch(() => undefined);
      this.reset();
      if (counts) this.set({ of: "promised" }, counts.gb * GIB);
      if (volumes)
        this.set(
          { of: "used" },
          volumes.reduce((sum, { bytes }) => sum + bytes, 0),
        );
    },
  });
  new Gauge({
    name: "vivarium_jobs",
    help: "Background jobs; state: created and retry wait, active runs, failed has no attempts left",
    labelNames: ["kind", "state"],
    registers,
    async collect() {
      const counts = await jobs.counts().catch(() => undefined);
      this.reset();
      if (!counts) return;
      for (const kind of Object.keys(JOB_KINDS)) for (const state of JOB_STATES) this.set({ kind, state }, 0);
      for (const { kind, state, count } of counts) this.set({ kind, state }, count);
    },
  });
  addBuilds(db, registers);
  addObjectGauges({ db, meter });
  new Gauge({
    name: "vivarium_node_up",
    help: "1 while the node answers; without it, what the node says is left out",
    registers,
    async collect() {
      this.set((await node.present()) ? 1 : 0);
    },
  });
  addWarm(
    { node, registers, name: "vivarium_warm_machines" },
    "Machines that wait for the next create; kind: baseline, or saved for templates and checkpoints of users",
    ({ ready }) => ready,
  );
  addWarm(
    { node, registers, name: "vivarium_warm_machines_wanted" },
    "How many are to wait, by how often one was wanted lately; labels as of vivarium_warm_machines",
    ({ wanted = 0 }) => wanted,
  );
  new Counter({
    name: "vivarium_new_machines_total",
    help: "Starts of new machines since the node started; from: pool where one waited, load where none did",
    labelNames: ["from"],
    registers,
    async collect() {
      const { new_machines: counted } = (await node.present()) ?? {};
      this.reset();
      if (counted) this.inc({ from: "pool" }, counted.from_pool);
      if (counted) this.inc({ from: "load" }, counted.loaded);
    },
  });
  new Gauge({
    name: "vivarium_node_disk_bytes",
    help: "The node's storage pool",
    labelNames: ["of"],
    registers,
    async collect() {
      const disk = (await node.present())?.disk;
      this.reset();
      if (disk) this.set({ of: "free" }, disk.free_bytes);
      if (disk) this.set({ of: "total" }, disk.total_bytes);
    },
  });
}

function addBuilds(db: ServiceDeps["db"], registers: Registry[]): void {
  new Gauge({
    name: "vivarium_template_builds",
    help: "Builds of templates from images; state: queued waits, building runs",
    labelNames: ["state"],
    registers,
    async collect() {
      const counts = await countBuilds(db).catch(() => undefined);
      this.reset();
      if (counts) this.set({ state: "queued" }, counts.queued);
      if (counts) this.set({ state: "building" }, counts.building);
    },
  });
}

function addWarm(
  { node, ...named }: { node: NodeState; registers: Registry[]; name: string },
  help: string,
  countOf: (warm: WarmMachines) => number,
): void {
  new Gauge({
    ...named,
    help,
    labelNames: ["kind", "template", "size"],
    async collect() {
      const { warm = [] } = (await node.present()) ?? {};
      this.reset();
      for (const one of warm) {
        const { template, size, snapshot_id: id } = one;
        this.inc({ kind: id === undefined ? "baseline" : "saved", template, size }, countOf(one));
      }
    },
  });
}
