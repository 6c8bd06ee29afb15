/** Copies of a snapshot, and deleting one of them. */
import { expect, test } from "vitest";
import { machinePath, refusal } from "../contracted-node.ts";
import { remove, type Setting, snapshotPath } from "./setting.ts";

export function copies(at: Setting): void {
  const { liveCapture, newMachine, newSnapshot, put, run, start } = at;

  test("a copy is a snapshot of its own, and deleting one harms neither machines nor copies", async () => {
    const [original, copy] = [newSnapshot(), newSnapshot()];
    const [before, after] = [newMachine(), newMachine()];
    await put(original, liveCapture);
    const made = await put(copy, { snapshot_id: original });
    expect(made).toMatchObject({ status: 200, body: { snapshot_id: copy, state: "ready", size: "small" } });
    // Nothing was captured for it.
    expect(made.body).not.toHaveProperty("timings");
    await start(before, { hostname: "before", snapshot_id: original });
    await remove(at.node, snapshotPath(original));
    await remove(at.node, snapshotPath(original));
    expect(await at.node.call("GET", snapshotPath(original))).toMatchObject(
      refusal(404, "snapshot_not_found"),
    );
    expect(await put(copy, { snapshot_id: original })).toEqual(made);
    expect(await start(after, { hostname: "after", snapshot_id: copy })).toMatchObject({ status: 200 });
    expect(await run(after, "cat file")).toBe("after\n");
    await remove(at.node, snapshotPath(copy));
    expect(await run(before, "cat file")).toBe("after\n");
    expect(await run(after, "cat file")).toBe("after\n");
    const late = newSnapshot();
    expect(await put(late, { machine_id: after, after: "continue" })).toMatchObject({ status: 200 });
    for (const path of [machinePath(before), machinePath(after), snapshotPath(late)])
      await remove(at.node, path);
  });
}
