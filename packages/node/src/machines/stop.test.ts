/** With slots and namespaces of this host, and its own cgroup v2 file system. */
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createLog } from "@vivarium/kit/log";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ignoreKills, makeTestGroup, startIn } from "../../test-support/test-group.ts";
import { createNetwork } from "../app.ts";
import type { NodeConfig } from "../config.ts";
import { openCgroups } from "../host/cgroup.ts";
import { THIS_HOST } from "../host/cgroup-parent.ts";
import { type Slot, slotsOf } from "../host/slots.ts";
import { NamespacePool } from "../network/namespace-pool.ts";
import { type JournalEntry, machineDir, readEntry, writeEntry } from "./journal.ts";
import { removeLeftovers } from "./leftovers.ts";
import { type StopDeps, stopMachine } from "./stop.ts";
import { MachineTable } from "./table.ts";

const ID = `${"a".repeat(21)}-1`;
const SHAPE = { accelerator: "kvm", vcpus: 1, memMb: 64 } as const;

let dataDir: string;
let deps: StopDeps & { namespaces: NamespacePool };
/** The slot, a file and the group with a process that a machine had. */
let slot: Slot;
let disk: string;
let group: string;

beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "stop-"));
  const log = createLog("test", "fatal");
  const host = { resolvers: [], systemResolvers: [], never: ["10.0.0.0/8"] };
  const network = createNetwork({
    ...{ host, log, closeSmtp: false, expectGatewayMs: 0 },
    keep: async () => {},
  });
  const root = makeTestGroup();
  const cgroups = await openCgroups({
    ...THIS_HOST,
    root,
    systemdDir: "/nowhere",
    endLimitMs: 2_000 * SLOWNESS,
  });
  const namespaces = new NamespacePool({ ...{ owner: dataDir, limit: 4096, cgroups, network, log } });
  deps = {
    config: { dataDir } as NodeConfig,
    namespaces,
    table: new MachineTable({ memoryKillOf: () => undefined }),
    log,
  };
  slot = await namespaces.take("deny");
  await writeEntry(dataDir, entryOf(slot));
  disk = path.join(machineDir(dataDir, ID), "disk.qcow2");
  await writeFile(disk, "");
  group = (await cgroups.make(slot, SHAPE)) ?? "";
  await startIn(group, "sleep 600 &");
});

afterEach(async () => {
  await deps.namespaces.close();
  await rm(dataDir, { recursive: true });
});

function entryOf({ number }: Slot): JournalEntry {
  const spec = { template: "base", size: "small", hostname: "a", no_sudo: false } as const;
  return { machine_id: ID, spec, state: "running", slot: number };
}

const isTaken = async () => (await slotsOf(dataDir)).some(({ number }) => number === slot.number);

async function expectNothingLeft(): Promise<void> {
  expect([group, machineDir(dataDir, ID), `/run/netns/${slot.netns}`].filter(existsSync)).toEqual([]);
  // The pool may take the freed slot for a namespace that it prepares.
  await deps.namespaces.close();
  await expect.poll(() => slotsOf(dataDir)).toEqual([]);
}

test("a stop removes processes, group, namespace and files, and frees the slot", async () => {
  await stopMachine(deps, ID);
  await expectNothingLeft();
});

test("a group that does not empty stops nothing else of the removal, and keeps its slot and entry until a later one", async () => {
  const noticeKills = ignoreKills(group);
  await expect(stopMachine(deps, ID)).rejects.toThrow(/slot \d+ failed: .*still in use/);
  expect([disk, `/run/netns/${slot.netns}`].filter(existsSync)).toEqual([]);
  expect(await readEntry(dataDir, ID)).toMatchObject({ slot: slot.number });
  expect(await isTaken()).toBe(true);
  noticeKills();
  await stopMachine(deps, ID);
  await expectNothingLeft();
});

test("leftovers are removed in the background, but not while a start under their id removes them", async () => {
  const noticeKills = ignoreKills(group);
  await expect(stopMachine(deps, ID)).rejects.toThrow();
  noticeKills();
  const over = new AbortController();
  const start = Promise.withResolvers<never>();
  start.promise.catch(() => {});
  deps.table.starting.set(ID, { spec: entryOf(slot).spec, done: start.promise });
  const removing = removeLeftovers(deps, over.signal, 20);
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(await isTaken()).toBe(true);
  deps.table.starting.delete(ID);
  await expect.poll(() => existsSync(machineDir(dataDir, ID))).toBe(false);
  await expectNothingLeft();
  expect(deps.table.leftover.size).toBe(0);
  over.abort();
  await removing;
});
