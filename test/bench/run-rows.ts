/** Rows about runs one after the other, in lanes, paced and in a burst: the cases that a pool by demand is made for. */
import { join } from "node:path";
import { NodeInfo } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { Client } from "@vivarium/sdk";
import { execInGuest } from "../../packages/node/src/guest/exec.ts";
import { resumeAs } from "../../packages/node/src/machines/handshake.ts";
import type { Loadable } from "../../packages/node/src/snapshots/manifest.ts";
import { startByHand, TapNamespace } from "../support/machine-by-hand.ts";
import { nodeCaller } from "../support/node-caller.ts";
import type { ServiceFacts } from "../support/service.ts";
import { percentile, type Row, row, timed } from "./samples.ts";

const PACE_MS = 2_000;
const BURST = 10;
/** Until the pool is full and the demand of earlier rows has faded. */
const QUIET_MS = 45_000;
const EXEC_LIMIT_MS = 30_000;
const PRINT = ["python3", "-c", "print(1)"];

export interface RunEffort {
  /** Runs of each row. */
  runs: number;
  bursts: number;
}

export async function runRows(facts: ServiceFacts, baseline: Loadable, effort: RunEffort): Promise<Row[]> {
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const floor = await floorOf(facts, baseline, Math.min(5, effort.runs));
  const rows: Row[] = [
    row("floor: waiting by hand, identity and print(1) in Python", "ms", floor.waiting),
    row("floor: loaded by hand, identity and print(1) in Python", "ms", floor.loaded),
  ];
  const over = (ms: number[]) =>
    `${(percentile(ms, 50) / percentile(floor.waiting, 50)).toFixed(2)} × waiting`;
  const run = () => timed(() => client.run({ language: "python", code: "print(1)" }));
  await sleep(QUIET_MS);
  const paced = await countingReady(facts, () => pacedRuns(effort.runs, run));
  rows.push(
    row(
      "runs of print(1), one in two seconds",
      "ms",
      paced.ms,
      `${paced.share} (goal 0.9); ${over(paced.ms)}`,
    ),
  );
  for (const lanes of [1, 2, 4]) {
    await sleep(QUIET_MS);
    const each = await countingReady(facts, () => inLanes(lanes, effort.runs, run));
    const perSecond = (each.ms.length / (each.tookMs / 1_000)).toFixed(2);
    const name =
      lanes === 1 ? "runs of print(1), one after the other" : `runs of print(1), in ${lanes} lanes`;
    rows.push(row(name, "ms", each.ms, `${perSecond} runs/s; ${each.share}; ${over(each.ms)}`));
  }
  return [...rows, await burstRow(facts, client, effort.bursts, floor.loaded)];
}

/** The same two commands as a run that finds a machine ready, and as a run that does not, without the service. */
async function floorOf(facts: ServiceFacts, baseline: Loadable, n: number) {
  const waiting: number[] = [];
  const loaded: number[] = [];
  const network = await TapNamespace.make("bench");
  try {
    for (let i = 0; i <= n; i++) {
      const startedAt = performance.now();
      const machine = await startByHand(baseline, join(facts.dataDir, "pool"), network);
      const { agent, qmp } = machine;
      const print = async () => {
        await resumeAs(agent, { identity: { hostname: "bench", no_sudo: false } });
        for await (const _ of await execInGuest(agent, { argv: PRINT, env: {}, timeout_ms: EXEC_LIMIT_MS }));
      };
      try {
        await machine.go();
        await print();
        const loadedMs = performance.now() - startedAt;
        await agent.freeze();
        await qmp.execute("stop");
        const waitingMs = await timed(async () => {
          await qmp.execute("cont");
          await print();
        });
        if (i > 0) loaded.push(loadedMs);
        if (i > 0) waiting.push(waitingMs);
      } finally {
        await machine.end();
      }
    }
  } finally {
    await network.remove();
  }
  return { waiting, loaded };
}

/** At a constant rate, however long the runs take: slow runs overlap. */
async function pacedRuns(n: number, run: () => Promise<number>): Promise<number[]> {
  const startedAt = performance.now();
  return await Promise.all(
    Array.from({ length: n }, async (_, i) => {
      await sleep(Math.max(0, startedAt + i * PACE_MS - performance.now()));
      return await run();
    }),
  );
}

async function inLanes(lanes: number, n: number, run: () => Promise<number>): Promise<number[]> {
  const ms: number[] = [];
  let begun = 0;
  const lane = async () => {
    while (begun++ < n) ms.push(await run());
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return ms;
}

async function countingReady(facts: ServiceFacts, work: () => Promise<number[]>) {
  const before = await newMachines(facts);
  let ms: number[] = [];
  const tookMs = await timed(async () => {
    ms = await work();
  });
  const after = await newMachines(facts);
  const ready = after.from_pool - before.from_pool;
  const all = ready + after.loaded - before.loaded;
  return { ms, tookMs, share: `${(ready / all).toFixed(2)} found one ready` };
}

async function newMachines(facts: ServiceFacts) {
  const { body } = await nodeCaller(facts.nodeSocket).call("GET", "/v1/info");
  const { new_machines: counted } = NodeInfo.parse(body);
  if (!counted) throw new Error("the node does not report how many machines it started");
  return counted;
}

/** Ten creates at once, each to its first exec. */
async function burstRow(facts: ServiceFacts, client: Client, bursts: number, loaded: number[]): Promise<Row> {
  const ms: number[] = [];
  const shares: string[] = [];
  for (let i = 0; i < bursts; i++) {
    await sleep(QUIET_MS);
    const burst = await countingReady(facts, () =>
      Promise.all(Array.from({ length: BURST }, () => oneOf(client))),
    );
    ms.push(...burst.ms);
    shares.push(burst.share);
  }
  const spread = (percentile(ms, 95) / percentile(ms, 50)).toFixed(2);
  const over = (percentile(ms, 50) / percentile(loaded, 50)).toFixed(2);
  const note = `${shares.join(", ")}; p95 ${spread} × p50 (goal ≤ 4); p50 ${over} × loaded`;
  return row(`${BURST} creates at once, each to its first exec`, "ms", ms, note);
}

async function oneOf(client: Client): Promise<number> {
  let id = "";
  const ms = await timed(async () => {
    id = (await client.sessions.create()).session_id;
    await client.sessions.exec(id, { command: ["true"] });
  });
  await client.sessions.delete(id);
  return ms;
}
