/**
 * Benchmarks: floors and rows of one run, side by side. Figures count as ratios only; the machine is shared.
 *
 *   npm run bench [-- --quick] [--only GROUP]... [--out FILE]
 */
import { mkdir, writeFile } from "node:fs/promises";
import { cpus, release, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { NodeInfo } from "@vivarium/contract/node";
import { Client } from "@vivarium/sdk";
import { raiseCeiling } from "../support/database.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { IMAGES, type ServiceFacts, startService } from "../support/service.ts";
import { apiRows } from "./api-rows.ts";
import { connectionRows } from "./connection-rows.ts";
import { historyRows } from "./history-rows.ts";
import { idleRows } from "./idle-rows.ts";
import { lifecycleRows } from "./lifecycle-rows.ts";
import { createRows, execRows, findBaseline, poolHitRows } from "./machine-rows.ts";
import { FULL_NETWORK, networkRows, QUICK_NETWORK } from "./network-rows.ts";
import { peerRows } from "./peer-rows.ts";
import { runRows } from "./run-rows.ts";
import type { Row } from "./samples.ts";
import { sealedRows } from "./sealed-rows.ts";
import { FULL_STORAGE, QUICK_STORAGE, storageRows } from "./storage-rows.ts";
import { streamRows } from "./stream-rows.ts";

const { values } = parseArgs({
  options: {
    quick: { type: "boolean" },
    only: { type: "string", multiple: true },
    out: { type: "string" },
  },
});
const quick = {
  ...{ creates: 5, execs: 20, lives: 3, loadS: 3, streams: { mib: 16, n: 2 }, network: QUICK_NETWORK },
  ...{
    runs: { runs: 10, bursts: 1 },
    idleS: 10,
    historyRows: 50_000,
    peers: 5,
    connections: { seconds: 3, mib: 64, sessions: 100 },
    storage: QUICK_STORAGE,
  },
};
const full = {
  ...{ creates: 20, execs: 200, lives: 10, loadS: 10, streams: { mib: 64, n: 5 }, network: FULL_NETWORK },
  ...{
    runs: { runs: 30, bursts: 3 },
    idleS: 60,
    historyRows: 1_000_000,
    peers: 20,
    connections: { seconds: 10, mib: 512, sessions: 1_000 },
    storage: FULL_STORAGE,
  },
};
const effort = values.quick ? quick : full;

const service = await startService({ env: { VIV_FORK_CHILDREN: "16" } });
try {
  await raiseCeiling(service.facts, 50);
  const baseline = await findBaseline(service.facts, IMAGES);
  const warm = { VIV_WARM_MACHINES: "1" };
  const groups: Record<string, () => Promise<Row[]>> = {
    create: () => createRows(service.facts, baseline, effort.creates),
    exec: () => execRows(service.facts, effort.execs),
    streams: () => streamRows(service.facts, baseline, effort.streams),
    lifecycle: () => lifecycleRows(service.facts, baseline, effort.lives),
    sealed: () => sealedRows(service.facts, effort.lives),
    api: () => apiRows(service.facts, effort.loadS),
    connections: () => connectionRows(effort.connections),
    network: () => networkRows((facts) => findBaseline(facts, IMAGES), effort.network),
    pool: () => withService(warm, (facts) => poolHitRows(facts, effort.creates)),
    runs: () => withService(warm, (facts) => runRows(facts, baseline, effort.runs)),
    idle: () =>
      withService({ ...warm, VIV_MAX_WARM_MACHINES: "1" }, (facts) =>
        idleRows(facts, baseline, effort.idleS),
      ),
    history: () => withService({}, (facts) => historyRows(facts, effort.historyRows, effort.loadS)),
    storage: async () => storageRows(effort.storage),
    peers: () => withService(warm, (facts) => peerRows(facts, baseline, effort.peers)),
  };
  const rows: Row[] = [];
  for (const name of values.only ?? Object.keys(groups)) rows.push(...(await groupOf(groups, name)()));
  const surroundings = await describeSurroundings(service.facts);
  printTable(rows, surroundings);
  await writeRows(rows, surroundings);
} finally {
  await service.stop();
}

function groupOf(groups: Record<string, () => Promise<Row[]>>, name: string): () => Promise<Row[]> {
  const group = groups[name];
  if (!group) throw new Error(`--only ${name}: expected one of ${Object.keys(groups).join(", ")}`);
  return group;
}

/** A second service with other settings: it keeps machines ready, or has a history; the rows above need neither. */
async function withService(
  env: Record<string, string>,
  rows: (facts: ServiceFacts) => Promise<Row[]>,
): Promise<Row[]> {
  const own = await startService({ env });
  try {
    await raiseCeiling(own.facts, 50);
    return await rows(own.facts);
  } finally {
    await own.stop();
  }
}

async function describeSurroundings(facts: ServiceFacts) {
  const { body } = await nodeCaller(facts.nodeSocket).call("GET", "/v1/info");
  const info = NodeInfo.parse(body);
  const health = await new Client({ url: facts.url }).health();
  const [cpu] = cpus();
  return {
    machine: `${cpus().length} × ${cpu?.model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GiB`,
    accelerator: info.isolation === "kvm" ? "kvm" : "tcg",
    versions: {
      vivarium: health.version,
      qemu: info.qemu_version,
      node: process.versions.node,
      kernel: release(),
    },
  };
}

type Surroundings = Awaited<ReturnType<typeof describeSurroundings>>;

function printTable(rows: Row[], { machine, accelerator, versions }: Surroundings): void {
  const width = Math.max(...rows.map(({ name }) => name.length));
  const number = (value: number) => (value >= 100 ? value.toFixed(0) : value.toFixed(1)).padStart(9);
  console.log(`\n${machine}; ${accelerator}; QEMU ${versions.qemu}, Node ${versions.node}\n`);
  console.log(`${"".padEnd(width)}        p50       p95          n`);
  for (const { name, unit, p50, p95, n, note } of rows)
    console.log(
      `${name.padEnd(width)} ${number(p50)} ${number(p95)} ${unit.padEnd(4)} ${String(n).padStart(5)}  ${note ?? ""}`,
    );
}

async function writeRows(rows: Row[], surroundings: Surroundings): Promise<void> {
  const at = new Date().toISOString();
  const file = values.out ?? join(import.meta.dirname, "results", `${at.replaceAll(":", "-")}.json`);
  await mkdir(dirname(file), { recursive: true });
  const whole = rows.map((each) => ({ at, ...each, ...surroundings }));
  await writeFile(file, `${JSON.stringify(whole, null, 2)}\n`);
  console.log(`\nrows: ${file}`);
}
