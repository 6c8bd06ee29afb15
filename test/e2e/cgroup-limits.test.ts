/**
 * Limits of a machine's cgroup: a busy guest reaches them and lives, and beyond them only this machine is hurt. Each
 * test shows that its limit was reached. A neighbour session, and the API, answer afterwards.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { sleep } from "@vivarium/kit/clock";
import { GIB, MIB } from "@vivarium/kit/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { Client } from "@vivarium/sdk";
import { longFetch } from "@vivarium/sdk/long-fetch";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { readProcess } from "../support/host-processes.ts";
import { ask, service, sh, withSession } from "../support/http.ts";
import { lackOfGroups, MachineGroup } from "../support/machine-group.ts";
import { POOL } from "../support/service.ts";

const MINUTE_MS = 60_000;
/** These hosts may be emulated themselves. */
const SLOW_MS = Math.min(5 * MINUTE_MS * SLOWNESS, 60 * MINUTE_MS);
/** How long the file system below the disks takes no write, so that each request of a guest takes a thread. */
const FROZEN_S = 20;
/** QEMU's pool for the disk. */
const POOL_THREADS = 64;
const AT_ONCE = 128;

/**
 * Reads and writes of a file past the guest's page cache, by this many threads for that many seconds. Every block is
 * written before: QEMU does not write side by side to blocks that its disk does not have yet.
 */
const DISK_LOAD = `
import mmap, os, random, sys, threading, time
BLOCK, BLOCKS = 16384, 512
fd = os.open("/workspace/load", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
def block():
    buffer = mmap.mmap(-1, BLOCK)
    buffer.write(os.urandom(BLOCK))
    return buffer
for at in range(BLOCKS): os.pwritev(fd, [block()], at * BLOCK)
os.sync()
count, until = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
open("/workspace/loaded", "w").close()
def work():
    buffer = block()
    while time.monotonic() < until:
        at = random.randrange(BLOCKS) * BLOCK
        if random.random() < 0.5: os.pwritev(fd, [buffer], at)
        else: os.preadv(fd, [buffer], at)
threads = [threading.Thread(target=work) for _ in range(count)]
for one in threads: one.start()
for one in threads: one.join()
print("done")
`;
/** Writes a file of this many MiB, none of them zeros, which a disk would not keep, and reads it again. */
const FILL_CACHE = `
import os, sys
block = os.urandom(1 << 20)
with open("/workspace/fill", "wb") as f:
    for i in range(int(sys.argv[1])): f.write(i.to_bytes(8, "big") + block[8:])
with open("/workspace/fill", "rb") as f:
    while f.read(1 << 20): pass
os.remove("/workspace/fill")
print("done")
`;

/** Node's own fetch gives up a call that is answered after five minutes, which a command takes on an emulated host. */
const client = new Client({ url: service.url, apiKey: service.apiKey, retries: 0, fetch: longFetch });

const lack = lackOfGroups();
const title = lack === undefined ? "the limits of a machine" : `the limits of a machine (skipped: ${lack})`;

describe.skipIf(lack !== undefined)(title, () => {
  let neighbour: string;

  beforeAll(async () => {
    neighbour = (await client.sessions.create({ name: "neighbour" })).session_id;
    await expectAnswer(neighbour);
  });

  afterAll(async () => {
    await expectAnswer(neighbour);
    await client.sessions.delete(neighbour);
  });

  const withGroup = (use: (id: string, group: MachineGroup) => Promise<void>) =>
    withSession((id) => use(id, new MachineGroup(service.dataDir, id)));

  test("every process of the jail is in the machine's own group", async () => {
    await withGroup(async (_id, group) => {
      const parent = readProcess(group.pid)?.ppid ?? 0;
      expect(group.path).toMatch(/vivarium[^/]*\/slot-\d+$/);
      expect(readProcess(parent)?.argv[0]).toMatch(/bwrap$/);
      expect(group.pids.toSorted()).toEqual([parent, group.pid].toSorted());
    });
  });

  test(
    `${AT_ONCE} reads and writes at once for a minute: QEMU has all threads of its pool, and lives`,
    async () => {
      await withGroup(async (id, group) => {
        const load = loadDisk(id, MINUTE_MS / 1000);
        const frozen = freezeDisks(id);
        const most = await mostThreads(group, frozen);
        expect(await load).toMatchObject({ stdout: "done\n", exit_code: 0 });
        expect(most).toBeGreaterThanOrEqual(POOL_THREADS);
        expect(group.count("pids.events", "max")).toBe(0);
        await expectAnswer(id);
      });
    },
    2 * SLOW_MS,
  );

  test(
    "the same load with a limit below the pool ends the machine: the limit is what keeps it alive",
    async () => {
      await withGroup(async (id, group) => {
        group.set("pids.max", String(POOL_THREADS / 2));
        const load = loadDisk(id, MINUTE_MS / 1000).catch(() => undefined);
        await freezeDisks(id);
        await load;
        await expectFailed(id);
        await expectAnswer(neighbour);
      });
    },
    2 * SLOW_MS,
  );

  test(
    "a guest that fills its page cache, and the host's with its disk, is slowed and lives",
    async () => {
      await withGroup(async (id, group) => {
        const mib = (2 * Number(group.read("memory.max"))) / MIB;
        const command = ["python3", "-c", FILL_CACHE, String(Math.min(mib, 4 * (GIB / MIB)))];
        const filled = await client.sessions.exec(id, { command, timeout_ms: SLOW_MS });
        expect(filled).toMatchObject({ stdout: "done\n", exit_code: 0 });
        expect(group.count("memory.events", "high")).toBeGreaterThan(0);
        expect(group.count("memory.events", "oom_kill")).toBe(0);
        await expectAnswer(id);
      });
    },
    2 * SLOW_MS,
  );

  test(
    "memory beyond the limit ends all of this machine and nothing else",
    async () => {
      await withGroup(async (id, group) => {
        const bytes = Number(group.read("memory.max"));
        group.run(`exec python3 -c 'b = bytearray(b"x") * ${bytes}'`);
        await expectFailed(id);
        expect(readProcess(group.pid)).toBeUndefined();
        await expectAnswer(neighbour);
      });
    },
    2 * SLOW_MS,
  );

  test(
    "a fork bomb in a guest starts nothing on the host, and one in the machine's group meets the limit",
    async () => {
      await withGroup(async (id, group) => {
        const bomb = client.sessions.exec(id, {
          command: ["bash", "-c", ":(){ :|:& };:; sleep 60"],
          timeout_ms: 8000,
        });
        await bomb.catch(() => undefined);
        expect(group.pids).toHaveLength(2);
        expect(group.count("pids.events", "max")).toBe(0);
        await expectAnswer(neighbour);
        group.run("while :; do sleep 600 & done");
        await eventually(() => expect(group.count("pids.events", "max")).toBeGreaterThan(0), MINUTE_MS);
        expect(Number(group.read("pids.current"))).toBeLessThanOrEqual(Number(group.read("pids.max")));
        await expectAnswer(neighbour);
        expect(await ask(`/v1/sessions/${id}`, { method: "DELETE" })).toMatchObject({ status: 204 });
        expect(() => group.read("cgroup.procs")).toThrow("ENOENT");
      });
    },
    2 * SLOW_MS,
  );

  test(
    "a spinning guest is throttled to its vCPUs, and its neighbour answers meanwhile",
    async () => {
      await withGroup(async (id, group) => {
        const spin = "for i in 1 2 3 4; do while :; do :; done & done; wait";
        const spinning = client.sessions.exec(id, { command: sh(spin), timeout_ms: 30_000 });
        // The disk's threads run beside the vCPU, so that together they want more than the machine may have.
        const busy = loadDisk(id, 20);
        for (let i = 0; i < 5; i++) {
          await expectAnswer(neighbour);
          await sleep(2_000);
        }
        await Promise.allSettled([spinning, busy]);
        expect(group.count("cpu.stat", "nr_throttled")).toBeGreaterThan(0);
        await expectAnswer(id);
      });
    },
    2 * SLOW_MS,
  );
});

function loadDisk(id: string, seconds: number) {
  const command = ["python3", "-c", DISK_LOAD, String(AT_ONCE), String(seconds)];
  return client.sessions.exec(id, { command, timeout_ms: SLOW_MS });
}

/** Stops all writes to the pool for a while, once the load runs. A process of its own ends that, also if the test dies. */
async function freezeDisks(id: string): Promise<void> {
  const command = ["test", "-e", "/workspace/loaded"];
  await eventually(async () => {
    expect(await client.sessions.exec(id, { command })).toMatchObject({ exit_code: 0 });
  }, MINUTE_MS);
  await sleep(5_000);
  const script = `fsfreeze --freeze "$0" && { sleep ${FROZEN_S}; fsfreeze --unfreeze "$0"; }`;
  const child = spawn("sh", ["-c", script, POOL], { detached: true, stdio: "ignore" });
  const [code] = await once(child, "exit");
  expect(code).toBe(0);
}

/** The most threads that QEMU had at any look until the work is over. */
async function mostThreads(group: MachineGroup, work: Promise<unknown>): Promise<number> {
  let isOver = false;
  const over = () => {
    isOver = true;
  };
  void work.then(over, over);
  let most = 0;
  while (!isOver) {
    most = Math.max(most, group.threads);
    await sleep(50);
  }
  return most;
}

/** A guest that its limits slow may be late for a call, which then says so; its machine and its commands remain. */
async function expectAnswer(id: string): Promise<void> {
  const command = { command: ["echo", "here"], timeout_ms: MINUTE_MS * SLOWNESS };
  await eventually(async () => {
    expect(await client.sessions.exec(id, command)).toMatchObject({ stdout: "here\n", exit_code: 0 });
  }, MINUTE_MS);
  expect((await ask("/v1/healthz", { authorization: null })).status).toBe(200);
}

async function expectFailed(id: string): Promise<void> {
  await eventually(async () => expect((await client.sessions.get(id)).state).toBe("failed"), MINUTE_MS);
}
