/** A saved state with a damaged file is refused, leaves nothing behind, and stays on disk unchanged for a repair. */
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { NodeInfo } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, expect, test } from "vitest";
import { deviceArgumentsHash } from "../../packages/node/src/qemu/arguments.ts";
import { devicesOf, Manifest } from "../../packages/node/src/snapshots/manifest.ts";
import { startSpec } from "../contract/contracted-node.ts";
import { flipBit, type PageKind, pageOffset, removeFile, truncateFile, unshare } from "../support/damage.ts";
import { eventually } from "../support/eventually.ts";
import { readProcess } from "../support/host-processes.ts";
import { service, sh } from "../support/http.ts";
import { AHEAD, type MachineTraces, machinePid, machineTraces } from "../support/machine-traces.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { suspendControl } from "../support/service.ts";

const node = nodeCaller(service.nodeSocket);
const source = `${randomId()}-1`;
const whole = newSnapshot();
const used = [`/v1/machines/${source}`, `/v1/snapshots/${whole}`];
/** An option that QEMU accepts, and that the node does not pass today. */
const EARLIER = ["-name", "earlier"];
let before: MachineTraces;

// Control soon removes snapshots that no row of its own names.
let control: { resume: () => void };

beforeAll(async () => {
  control = suspendControl(service);
  await node.call("PUT", `/v1/machines/${source}`, startSpec({ hostname: "source" }));
  await node.exec(source, { argv: sh("echo whole > file") });
  const spec = { machine_id: source, after: "continue" };
  expect(await node.call("PUT", `/v1/snapshots/${whole}`, spec)).toMatchObject({ status: 200 });
  before = await tracesAtRest();
});
afterAll(async () => {
  for (const path of used) await node.call("DELETE", path);
  control.resume();
});

const files = ["state", "mem", "mem.sums", "disk.qcow2", "layer.qcow2"];

test.each(files)("%s cut short by one byte", async (name) => {
  await expectRefused(name, (dir) => truncateFile(dir, name));
});

test.each(files)("%s missing", async (name) => {
  await expectRefused(name, (dir) => removeFile(dir, name));
});

test.each(["state", "mem.sums", "disk.qcow2", "layer.qcow2"])("one bit of %s, unnoticed", async (name) => {
  await expectRefused(name, (dir) => flipBit(dir, name, statSync(join(dir, name)).size >> 1, true));
});

test("one bit of a page that the machine has changed, unnoticed", async () => {
  await expectRefused("memory", (dir) => flipBit(dir, "mem", pageOffset(dir, "own"), true));
});

test.each<PageKind>(["inherited", "empty"])("one bit written to an %s page", async (kind) => {
  await expectRefused("memory", (dir) => flipBit(dir, "mem", pageOffset(dir, kind), false));
});

test("a manifest that cannot be read", async () => {
  await expectRefused("manifest", async (dir) => {
    unshare(join(dir, "manifest.json"));
    writeFileSync(join(dir, "manifest.json"), '{"format": 2');
  });
});

test("devices other than those that its hash is of", async () => {
  await expectRefused("devices", async (dir) =>
    editManifest(dir, (manifest) => ({ devices: [...devicesOf(manifest), ...EARLIER] })),
  );
});

test("a manifest that is missing", async () => {
  await expectRefused("manifest", (dir) => removeFile(dir, "manifest.json"));
});

test("the snapshot that all of these were copied from is whole", async () => {
  const machine = `${randomId()}-1`;
  used.push(`/v1/machines/${machine}`);
  const spec = startSpec({ hostname: "again", snapshot_id: whole });
  expect(await node.call("PUT", `/v1/machines/${machine}`, spec)).toMatchObject({ status: 200 });
  const { stdout } = await node.exec(machine, { argv: ["cat", "file"] });
  expect(stdout.toString()).toBe("whole\n");
});

test("it continues with the devices that it was made with, also when new machines get others", async () => {
  const earlier = newSnapshot();
  const machine = `${randomId()}-1`;
  used.push(`/v1/snapshots/${earlier}`, `/v1/machines/${machine}`);
  await node.call("PUT", `/v1/snapshots/${earlier}`, { snapshot_id: whole });
  const dir = join(service.dataDir, "pool/s", earlier);
  editManifest(dir, (manifest) => {
    const devices = [...devicesOf(manifest), ...EARLIER];
    return { devices, device_arguments: deviceArgumentsHash(manifest, devices) };
  });
  const spec = startSpec({ hostname: "earlier", snapshot_id: earlier });
  expect(await node.call("PUT", `/v1/machines/${machine}`, spec)).toMatchObject({ status: 200 });
  const { stdout } = await node.exec(machine, { argv: ["cat", "file"] });
  expect(stdout.toString()).toBe("whole\n");
  const [session = ""] = machine.split("-");
  const pid = machinePid(service.dataDir, session);
  expect(readProcess(pid)?.argv.join(" ")).toContain(EARLIER.join(" "));
});

function editManifest(dir: string, edit: (manifest: Manifest) => Partial<Manifest>): void {
  const file = join(dir, "manifest.json");
  unshare(file);
  const manifest = Manifest.parse(JSON.parse(readFileSync(file, "utf8")));
  writeFileSync(file, JSON.stringify({ ...manifest, ...edit(manifest) }));
}

function newSnapshot(): string {
  return `chk_${randomId()}`;
}

/** `blamed`: the file that the refusal names. */
async function expectRefused(blamed: string, damage: (dir: string) => Promise<void>): Promise<void> {
  const copy = newSnapshot();
  const path = `/v1/snapshots/${copy}`;
  const made = await node.call("PUT", path, { snapshot_id: whole });
  expect(made).toMatchObject({ status: 200 });
  const dir = join(service.dataDir, "pool/s", copy);
  try {
    await damage(dir);
    const damaged = contentOf(dir);
    for (let attempt = 1; attempt <= 2; attempt++) {
      const machine = `/v1/machines/${randomId()}-1`;
      const spec = startSpec({ hostname: "damaged", snapshot_id: copy });
      expect(await node.call("PUT", machine, spec)).toMatchObject({
        status: 500,
        body: { code: "snapshot_damaged", message: expect.stringContaining(blamed) },
      });
      expect(await node.call("GET", machine)).toMatchObject({ status: 404 });
    }
    expect(await node.call("GET", path)).toMatchObject({ status: 500, body: { code: "snapshot_damaged" } });
    const info = NodeInfo.parse((await node.call("GET", "/v1/info")).body);
    expect(info.damaged_snapshots).toEqual([copy]);
    expect((await node.call("GET", "/v1/snapshots")).status).toBe(200);
    expect(contentOf(dir)).toEqual(damaged);
    expect(await tracesAtRest()).toEqual(before);
  } finally {
    expect(await node.call("DELETE", path)).toMatchObject({ status: 204 });
  }
}

/** Sizes and ages of the files in a folder, and the manifest itself. */
function contentOf(dir: string): unknown[] {
  return readdirSync(dir)
    .toSorted()
    .map((name) => {
      const { size, mtimeMs } = statSync(join(dir, name));
      const text = name === "manifest.json" ? readFileSync(join(dir, name), "utf8") : "";
      return { name, size, mtimeMs, text };
    });
}

/** Once the pool of namespaces is full again. */
async function tracesAtRest(): Promise<MachineTraces> {
  return await eventually(() => {
    const traces = machineTraces(service.dataDir);
    expect(traces).toMatchObject({ slots: 1 + AHEAD, netns: 1 + AHEAD, links: 1 + AHEAD });
    return traces;
  }, 60_000);
}
