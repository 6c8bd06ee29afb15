/** Snapshots without memory: of a machine, of a snapshot, and of what is sealed. */
import { randomBytes } from "node:crypto";
import { STATE_KEY_HEADER } from "@vivarium/contract/node";
import { expect, test } from "vitest";
import { machinePath, refusal, startSpec } from "../contracted-node.ts";
import { remove, type Setting, snapshotPath } from "./setting.ts";

export function disksAlone(at: Setting): void {
  const { liveCapture, newMachine, newSnapshot, put, run, saved, source, start } = at;
  const WITHOUT = { memory: false };

  test("a snapshot without memory has the files of its instant and no process, and its machine runs on", async () => {
    const [disk, child] = [newSnapshot(), newMachine()];
    await run(source, "echo on-disk > disk-alone");
    const made = await put(disk, { ...liveCapture, ...WITHOUT });
    expect(made).toMatchObject({ status: 200, body: { memory: false } });
    expect(await put(disk, { ...liveCapture, ...WITHOUT })).toEqual(made);
    expect(await at.node.call("GET", snapshotPath(disk))).toEqual(made);
    // Equal ids with another choice of memory are other snapshots.
    expect(await put(disk, liveCapture)).toMatchObject(refusal(409, "snapshot_conflict"));
    await run(source, "rm disk-alone");

    const over = { hostname: "booted", snapshot_id: disk };
    expect(await start(child, { ...over, resume: true })).toMatchObject(refusal(400, "invalid"));
    expect(await start(child, over)).toMatchObject({ status: 200, body: { state: "running" } });
    expect(await run(child, "cat disk-alone")).toBe("on-disk\n");
    if (at.traits.hasMemory) {
      // The brackets keep the pattern from matching the shell that asks.
      expect(await run(child, "pgrep -fc '[m]oments' || true")).toBe("0\n");
      expect(await run(child, "hostname; cat /etc/hostname")).toBe("booted\nbooted\n");
    }

    // The machine that has booted is saved and loaded like any other.
    const [next, grandchild] = [newSnapshot(), newMachine()];
    await run(child, "echo later > later");
    const capture = { machine_id: child, after: "continue" };
    const whole = await put(next, capture);
    expect(whole).toMatchObject({ status: 200 });
    expect(whole.body).not.toHaveProperty("memory");
    await remove(at.node, machinePath(child));
    expect(await start(grandchild, { hostname: "grandchild", snapshot_id: next })).toMatchObject({
      status: 200,
    });
    expect(await run(grandchild, "cat disk-alone later")).toBe("on-disk\nlater\n");
    for (const path of [machinePath(grandchild), ...[next, disk].map(snapshotPath)])
      await remove(at.node, path);
  });

  test("a machine does not stay stopped for a snapshot without its memory", async () => {
    const body = { machine_id: source, after: "hold", ...WITHOUT };
    expect(await put(newSnapshot(), body)).toMatchObject(refusal(400, "invalid"));
    for (const memory of [true, null, 0])
      expect(await put(newSnapshot(), { ...liveCapture, memory })).toMatchObject(refusal(400, "invalid"));
  });

  test("a sealed disk is saved alone of a snapshot, with its key, and boots with its key", async () => {
    const [key, other] = [newKey(), newKey()];
    const [machine, child] = [newMachine(), newMachine()];
    const [whole, disk, copy] = [newSnapshot(), newSnapshot(), newSnapshot()];
    const call = (path: string, body: object, with_?: Record<string, string>) =>
      at.node.call("PUT", path, body, with_);
    const startWith = (over: object, with_?: Record<string, string>) =>
      call(machinePath(child), startSpec({ hostname: "sealed", ...over }), with_);
    expect(await call(machinePath(machine), startSpec({ hostname: "sealed" }), key)).toMatchObject({
      status: 200,
    });
    await run(machine, "echo kept > file");
    const capture = { machine_id: machine, after: "hold" };
    expect(await call(snapshotPath(whole), capture, key)).toMatchObject({ status: 200 });
    await remove(at.node, machinePath(machine));

    const from = { snapshot_id: whole, ...WITHOUT };
    expect(await call(snapshotPath(disk), from, other)).toMatchObject(refusal(409, "wrong_state_key"));
    expect(await call(snapshotPath(disk), from, key)).toMatchObject({ status: 200, body: { memory: false } });
    await remove(at.node, snapshotPath(whole));
    const again = await call(snapshotPath(copy), { snapshot_id: disk }, key);
    expect(again).toMatchObject({ status: 200, body: { memory: false } });
    await remove(at.node, snapshotPath(disk));
    expect(await startWith({ snapshot_id: copy }, other)).toMatchObject(refusal(409, "wrong_state_key"));
    expect(await startWith({ snapshot_id: copy }, key)).toMatchObject({ status: 200 });
    expect(await run(child, "cat file")).toBe("kept\n");
    for (const path of [machinePath(child), snapshotPath(copy)]) await remove(at.node, path);
  });

  test("the disk alone is taken of a whole snapshot, and not of an unknown one", async () => {
    const disk = newSnapshot();
    const unknown = { snapshot_id: newSnapshot(), ...WITHOUT };
    expect(await put(disk, unknown)).toMatchObject(refusal(404, "snapshot_not_found"));
    expect(await put(disk, { snapshot_id: saved, ...WITHOUT })).toMatchObject({
      status: 200,
      body: { memory: false },
    });
    await remove(at.node, snapshotPath(disk));
  });
}

const newKey = () => ({ [STATE_KEY_HEADER]: randomBytes(32).toString("base64url") });
