/** Rows about idleness: processor and memory of idle sessions and of the service's processes. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { NodeInfo } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { Client } from "@vivarium/sdk";
import { resumeAs } from "../../packages/node/src/machines/handshake.ts";
import type { Loadable } from "../../packages/node/src/snapshots/manifest.ts";
import { eventually } from "../support/eventually.ts";
import { descendantsOf } from "../support/host-processes.ts";
import { startByHand, TapNamespace } from "../support/machine-by-hand.ts";
import { machinePid } from "../support/machine-traces.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { postgresPid, type ServiceFacts, servicePid } from "../support/service.ts";
import { cpuSeconds, ownMemoryBytes } from "./process-costs.ts";
import { percentile, type Row, row } from "./samples.ts";

const SESSIONS = 5;
/** Background work of a create is done by then. */
const QUIET_MS = 10_000;
const FILL_LIMIT_MS = 120_000;
const MIB = 1024 * 1024;

export async function idleRows(facts: ServiceFacts, baseline: Loadable, durationS: number): Promise<Row[]> {
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const network = await TapNamespace.make("bench");
  const byHand = await startByHand(baseline, join(facts.dataDir, "pool"), network);
  const bare = spawn(process.execPath, [join(import.meta.dirname, "bare-server.ts")], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ids: string[] = [];
  try {
    await byHand.go();
    await resumeAs(byHand.agent, { identity: { hostname: "bench", no_sudo: false } });
    await once(bare.stdout, "data");
    for (let i = 0; i < SESSIONS; i++) ids.push((await client.sessions.create()).session_id);
    for (const id of ids) await client.sessions.exec(id, { command: ["true"] });
    await poolFilled(facts);
    await sleep(QUIET_MS);
    const postgres = postgresPid(facts);
    const machines = ids.map((id) => machinePid(facts.dataDir, id));
    const groups = {
      byHand: () => [[byHand.pid]],
      sessions: () => machines.map((pid) => [pid]),
      bare: () => [[bare.pid as number]],
      node: () => [[servicePid(facts, "node")]],
      control: () => [[servicePid(facts, "control")]],
      gateway: () => [[servicePid(facts, "gateway")]],
      // Its connections come and go.
      postgres: () => [[postgres, ...descendantsOf(postgres).map(({ pid }) => pid)]],
    };
    const costs = await idleCosts(groups, durationS);
    const beside = (floor: keyof typeof groups) =>
      `floor ${percentile(costs[floor].percent, 50).toFixed(2)} %`;
    const with5 = `with ${SESSIONS} sessions`;
    const two = (what: string, name: keyof typeof groups, note?: string) => [
      row(`${what}: processor`, "%", costs[name].percent, note),
      row(`${what}: memory of its own`, "MiB", costs[name].mib),
    ];
    return [
      ...two("floor: idle machine loaded by hand", "byHand"),
      ...two("idle session, its machine", "sessions", `${beside("byHand")} (goal < 0.5)`),
      ...two("floor: idle bare server of the same framework", "bare"),
      ...two(`idle node daemon, ${with5}`, "node", `${beside("bare")} (goal < 1 with 50)`),
      ...two(`idle control, ${with5}`, "control", beside("bare")),
      ...two(`idle gateway, ${with5}`, "gateway", beside("bare")),
      ...two(`idle PostgreSQL, ${with5}`, "postgres"),
    ];
  } finally {
    for (const id of ids) await client.sessions.delete(id);
    bare.kill();
    await byHand.end();
    await network.remove();
  }
}

/** Waits until the pool is refilled: the node is not idle while it makes new machines. */
async function poolFilled(facts: ServiceFacts): Promise<void> {
  await eventually(async () => {
    const { body } = await nodeCaller(facts.nodeSocket).call("GET", "/v1/info");
    for (const { ready, wanted = 0, template } of NodeInfo.parse(body).warm ?? [])
      if (ready < wanted) throw new Error(`${ready} of ${wanted} machines of ${template} wait`);
  }, FILL_LIMIT_MS);
}

interface Cost {
  /** Share of one core. */
  percent: number[];
  mib: number[];
}

async function idleCosts<Name extends string>(
  groups: Record<Name, () => number[][]>,
  durationS: number,
): Promise<Record<Name, Cost>> {
  const names = Object.keys(groups) as Name[];
  const spent = () => new Map(names.map((name) => [name, groups[name]().map(cpuSeconds)]));
  const before = spent();
  await sleep(durationS * 1_000);
  const after = spent();
  const costOf = (name: Name): Cost => ({
    percent: groups[name]().map(
      (_, i) => ((Number(after.get(name)?.[i]) - Number(before.get(name)?.[i])) * 100) / durationS,
    ),
    mib: groups[name]().map((pids) => pids.reduce((sum, pid) => sum + ownMemoryBytes(pid), 0) / MIB),
  });
  return Object.fromEntries(names.map((name) => [name, costOf(name)])) as Record<Name, Cost>;
}
