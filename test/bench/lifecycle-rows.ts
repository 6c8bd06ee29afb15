/** Rows about saving, waking, copying and restoring, beside their floors. */
import { randomBytes } from "node:crypto";
import { readdirSync, statSync } from "node:fs";
import { chmod, open, rm } from "node:fs/promises";
import { join } from "node:path";
import { type CaptureTimings, SnapshotList } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { Client } from "@vivarium/sdk";
import { cloneFile } from "../../packages/node/src/disks/clone.ts";
import { changedRuns, mappingsOf } from "../../packages/node/src/snapshots/changed-pages.ts";
import type { Loadable } from "../../packages/node/src/snapshots/manifest.ts";
import { TapNamespace } from "../support/machine-by-hand.ts";
import { machinePid } from "../support/machine-traces.ts";
import { nodeCaller } from "../support/node-caller.ts";
import type { ServiceFacts } from "../support/service.ts";
import { captureByHand } from "./capture-by-hand.ts";
import { loadByHand } from "./load-by-hand.ts";
import { percentile, type Row, row, timed } from "./samples.ts";

const MIB = 1024 * 1024;
const DIRTY_MB = [0, 100, 200];
const DISK_MB = 256;
const UNSYNCED_MB = 128;
/** Commands that every measured session has run before it is saved. */
const WORK = ["python3", "-c", "print(sum(range(1000)))"];
const CHILDREN = 16;
const CHUNK = randomBytes(MIB);

export async function lifecycleRows(facts: ServiceFacts, baseline: Loadable, n: number): Promise<Row[]> {
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const pool = join(facts.dataDir, "pool");
  const network = await TapNamespace.make("bench");
  const samples: Record<string, number[]> = {};
  const note = (name: string, ms: number) => {
    samples[name] ??= [];
    samples[name].push(ms);
  };
  try {
    // Alternating, so that a noisy minute of the host affects floors and rows alike. The first round warms up.
    for (let i = 0; i <= n; i++) {
      const keep = i === 0 ? () => {} : note;
      keep("F6", await captureByHand(baseline, pool, network, WORK));
      const load = await loadByHand(baseline, pool, network);
      keep("F1", load.firstExecMs);
      keep("F2", load.fromWaitingMs);
      await oneLife(facts, client, keep);
    }
  } finally {
    await network.remove();
  }
  const p50 = (name: string) => percentile(samples[name] ?? [], 50);
  const over = (name: string, floor: string) => `${(p50(name) / p50(floor)).toFixed(2)} × ${floor}`;
  const of = (name: string) => samples[name] ?? [];
  return [
    row("F6 capture, by hand", "ms", of("F6")),
    row("F1 load, by hand, to the first exec", "ms", of("F1")),
    row("F2 load from a waiting process, to the first exec", "ms", of("F2")),
    row("pause, to its answer", "ms", of("pause"), `${over("pause", "F6")} (goal ≤ 1.5)`),
    row("  of it the guest's flush and freeze", "ms", of("pause: freeze")),
    row("  of it stopped", "ms", of("pause: stopped")),
    row("  of it made durable", "ms", of("pause: publish")),
    row("  of it manifest, calls and database", "ms", of("pause: rest")),
    row("wake, to the first exec", "ms", of("wake"), `${over("wake", "F1")} (goal ≤ 1.25)`),
    row("checkpoint of a live session, to its answer", "ms", of("checkpoint")),
    row("  of it stopped", "ms", of("stopped"), `${over("stopped", "F6")} (goal ≤ 1)`),
    row("restore in place, to its answer", "ms", of("restore"), `${over("restore", "F1")} (goal ≤ 1.25)`),
    await writeFloor(baseline, pool),
    ...(await dirtyRows(client)),
    ...(await diskRows(client)),
    await stopTimeRow(client),
    ...(await forkRows(facts, client, p50("F1"))),
  ];
}

async function oneLife(facts: ServiceFacts, client: Client, keep: (name: string, ms: number) => void) {
  const { session_id: id } = await client.sessions.create();
  try {
    await client.sessions.exec(id, { command: WORK });
    const checkpointMs = await timed(() => client.checkpoints.create(id, { name: "bench" }));
    keep("checkpoint", checkpointMs);
    keep("stopped", (await newestCapture(facts)).stopped);
    keep("restore", await timed(() => client.sessions.restore(id, "bench")));
    await client.sessions.exec(id, { command: WORK });
    const pauseMs = await timed(() => client.sessions.pause(id));
    const { freeze, stopped, publish } = await newestCapture(facts);
    keep("pause", pauseMs);
    keep("pause: freeze", freeze);
    keep("pause: stopped", stopped);
    keep("pause: publish", publish);
    keep("pause: rest", pauseMs - freeze - stopped - publish);
    // Cleaning up after the pause must not count for the wake.
    await sleep(1_000);
    keep("wake", await timed(() => client.sessions.exec(id, { command: ["true"] })));
  } finally {
    const { checkpoints } = await client.checkpoints.list(id);
    await client.sessions.delete(id);
    for (const { checkpoint_id } of checkpoints) await client.checkpoints.delete(checkpoint_id);
  }
}

async function newestCapture(facts: ServiceFacts): Promise<CaptureTimings> {
  const { body } = await nodeCaller(facts.nodeSocket).call("GET", "/v1/snapshots");
  const { snapshots } = SnapshotList.parse(body);
  const [newest] = snapshots.toSorted((a, b) => (a.created_at < b.created_at ? 1 : -1));
  if (!newest?.timings) throw new Error("the newest snapshot tells no stages of its capture");
  return newest.timings;
}

/** Time of the pool's disk for 100 MB that must be durable: a lower bound for the growth of a pause. */
async function writeFloor(baseline: Loadable, pool: string): Promise<Row> {
  const file = join(pool, "write-floor");
  const samples: number[] = [];
  for (let i = 0; i < 3; i++) {
    await cloneFile(join(baseline.dir, "mem"), file);
    await chmod(file, 0o600);
    const handle = await open(file, "r+");
    samples.push(
      await timed(async () => {
        for (let mb = 0; mb < 100; mb++) await handle.write(CHUNK, 0, MIB, (512 + mb) * MIB);
        await handle.sync();
      }),
    );
    await handle.close();
    await rm(file);
  }
  return row("100 MB written over a clone and synced, by hand", "ms", samples);
}

/** Growth of a pause with the memory that was changed since the last load. */
async function dirtyRows(client: Client): Promise<Row[]> {
  const rows: Row[] = [];
  let first = 0;
  for (const mb of DIRTY_MB) {
    const { session_id: id } = await client.sessions.create();
    try {
      const fill = `import os,time; b=os.urandom(1<<20)*${mb}; open("/workspace/ready","w").close(); time.sleep(600)`;
      const script = `python3 -c '${fill}' > /dev/null 2>&1 & until [ -e /workspace/ready ]; do sleep 0.1; done`;
      await client.sessions.exec(id, { command: ["sh", "-c", script], timeout_ms: 120_000 });
      const ms = await timed(() => client.sessions.pause(id));
      if (mb === 0) first = ms;
      const growth =
        mb > 0 ? `+ ${(((ms - first) / mb) * 100).toFixed(0)} ms per 100 MB (goal ≤ 60)` : undefined;
      rows.push(row(`pause with ${mb} MB changed`, "ms", [ms], growth));
    } finally {
      await client.sessions.delete(id);
    }
  }
  return rows;
}

/** Growth of a pause and a wake with the bytes that the session has written to its disk: both read them once. */
async function diskRows(client: Client): Promise<Row[]> {
  const { session_id: id } = await client.sessions.create();
  try {
    const write = `head -c ${DISK_MB}M /dev/urandom > /workspace/written && sync`;
    await client.sessions.exec(id, { command: ["sh", "-c", write], timeout_ms: 120_000 });
    const pauses: number[] = [];
    const wakes: number[] = [];
    for (let i = 0; i < 3; i++) {
      pauses.push(await timed(() => client.sessions.pause(id)));
      await sleep(1_000);
      wakes.push(await timed(() => client.sessions.exec(id, { command: ["true"] })));
    }
    return [
      row(`pause with ${DISK_MB} MB written to the disk`, "ms", pauses),
      row(`wake with ${DISK_MB} MB written to the disk`, "ms", wakes),
    ];
  } finally {
    await client.sessions.delete(id);
  }
}

/** Prints the longest pause between the two files, in ms of the guest's clock, which stops with the guest. */
const TICKER = `
import os, time
there = os.path.exists
while not there("/workspace/begin"): time.sleep(0.002)
open("/workspace/begun", "w").close()
longest, last = 0, time.monotonic()
while not there("/workspace/end"):
    time.sleep(0.002)
    now = time.monotonic()
    longest, last = max(longest, now - last), now
print(longest * 1000)
`;

/** How long a session's processes are stopped for a checkpoint when many written bytes are not on the disk yet. */
async function stopTimeRow(client: Client): Promise<Row> {
  const sh = (id: string, script: string) =>
    client.sessions.exec(id, { command: ["sh", "-c", script], timeout_ms: 120_000 });
  const samples: number[] = [];
  const { session_id: id } = await client.sessions.create();
  try {
    for (let i = 0; i < 3; i++) {
      await sh(id, `rm -f begin begun end && sync && head -c ${UNSYNCED_MB}M /dev/urandom > written`);
      const ticked = client.sessions.exec(id, { command: ["python3", "-c", TICKER], timeout_ms: 120_000 });
      await sh(id, "touch begin; until [ -e begun ]; do sleep 0.05; done");
      const checkpoint = await client.checkpoints.create(id, { name: `still-${i}` });
      await sh(id, "touch end");
      samples.push(Number((await ticked).stdout));
      await client.checkpoints.delete(checkpoint.checkpoint_id);
    }
    return row(
      `processes stand still for a checkpoint, ${UNSYNCED_MB} MB not on the disk yet`,
      "ms",
      samples,
    );
  } finally {
    await client.sessions.delete(id);
  }
}

async function forkRows(facts: ServiceFacts, client: Client, loadMs: number): Promise<Row[]> {
  const { session_id: id } = await client.sessions.create();
  try {
    await client.sessions.exec(id, { command: WORK });
    let children: string[] = [];
    let parentStopped = Number.NaN;
    const forkMs = await timed(async () => {
      const answer = await client.sessions.fork(id, { count: CHILDREN }, { timing: true });
      children = answer.children;
      parentStopped = answer.timing?.stopped ?? Number.NaN;
    });
    const own: number[] = [];
    for (const child of children) {
      await client.sessions.exec(child, { command: ["true"] });
      own.push(ownBytes(facts, child) / MIB);
    }
    await Promise.all(children.map((child) => client.sessions.delete(child)));
    const bound = (CHILDREN * loadMs) / 2;
    return [
      row(
        `fork into ${CHILDREN}, to its answer`,
        "ms",
        [forkMs],
        `${(forkMs / bound).toFixed(2)} × (16 × F1 ÷ 2 cores) (goal ≤ 1)`,
      ),
      row("  of it the parent stands still", "ms", [parentStopped]),
      row("memory of a forked child's own after one exec", "MiB", own, "goal ≤ 12"),
    ];
  } finally {
    await client.sessions.delete(id);
  }
}

/** Guest pages that the machine does not share with any process. */
function ownBytes(facts: ServiceFacts, session: string): number {
  const machines = join(facts.dataDir, "pool/m");
  const folder = readdirSync(machines).find((name) => name.startsWith(`${session}-`)) as string;
  const file = statSync(join(machines, folder, "parent/mem"), { bigint: true });
  const pid = machinePid(facts.dataDir, session);
  return changedRuns(pid, mappingsOf(pid, file)).reduce((sum, { bytes }) => sum + bytes, 0);
}
