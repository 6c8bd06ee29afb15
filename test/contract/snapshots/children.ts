/** Machines that are started from a snapshot. */
import { describe, expect, test } from "vitest";
import { expectCounting } from "../../support/guest-counter.ts";
import { machinePath, refusal } from "../contracted-node.ts";
import { remove, type Setting, snapshotPath, statusOf } from "./setting.ts";

export function children(at: Setting): void {
  const { newMachine, newSnapshot, put, run, saved, source, start } = at;

  describe("a machine from a snapshot", () => {
    const child = newMachine();
    const over = { hostname: "child", snapshot_id: saved };

    test("has the files of the instant, and an identity of its own", async () => {
      expect(await start(child, over)).toMatchObject({ status: 200, body: { state: "running" } });
      expect(await run(child, "cat file kept")).toBe("before\nkept\n");
      expect(await run(source, "cat file; ls kept 2> /dev/null || true")).toBe("after\n");
      if (!at.traits.hasMemory) return;
      expect(await run(child, "hostname")).toBe("child\n");
      expect(await run(child, "cat /etc/machine-id")).not.toBe(await run(source, "cat /etc/machine-id"));
    });

    test.runIf(at.traits.hasMemory)("has the commands of the instant, which continue", async () => {
      await expectCounting(at.node, child);
    });

    test("started again with the same body is the same machine; another snapshot is a conflict", async () => {
      expect(await start(child, over)).toMatchObject({ status: 200, body: { machine_id: child } });
      expect(await start(child, { ...over, snapshot_id: newSnapshot() })).toMatchObject(
        refusal(409, "machine_conflict"),
      );
    });

    test("is captured in turn", async () => {
      const grandchild = newMachine();
      const second = newSnapshot();
      await run(child, "echo child > file");
      const whole = await put(second, { machine_id: child, after: "hold" });
      expect(whole).toMatchObject({ status: 200, body: { state: "ready" } });
      await remove(at.node, machinePath(child));
      expect(await start(grandchild, { hostname: "child", snapshot_id: second, resume: true })).toMatchObject(
        {
          status: 200,
        },
      );
      expect(await run(grandchild, "cat file kept")).toBe("child\nkept\n");
      await remove(at.node, machinePath(grandchild));
    });
  });

  test("that resumes stays the machine that was saved", async () => {
    const resumed = newMachine();
    const over = { hostname: "source", snapshot_id: saved, resume: true };
    expect(await start(resumed, over)).toMatchObject({ status: 200 });
    expect(await run(resumed, "cat file")).toBe("before\n");
    expect(await run(resumed, "cat /etc/machine-id")).toBe(await run(source, "cat /etc/machine-id"));
    await remove(at.node, machinePath(resumed));
  });

  test("whose guest is unfit to be copied is refused, held or not, and leaves the old machine as it is", async () => {
    const [old, next] = [newMachine(), newMachine()];
    const unfit = newSnapshot();
    expect(await start(old, { hostname: "old", snapshot_id: saved })).toMatchObject({ status: 200 });
    await at.node.makeUnfit(old);
    expect(await put(unfit, { machine_id: old, after: "continue" })).toMatchObject({ status: 200 });
    for (const more of [{ hold: true }, {}]) {
      const refused = await start(next, { hostname: "next", snapshot_id: unfit, ...more });
      expect(refused).toMatchObject(refusal(409, "guest_unfit"));
      expect(await at.node.call("GET", machinePath(next))).toMatchObject(refusal(404, "machine_not_found"));
    }
    expect(await statusOf(at.node, old)).toMatchObject({ state: "running" });
    expect(await run(old, "cat file")).toBe("before\n");
    // The name is free again, and the saved state still works for a machine that resumes from it.
    const resumed = await start(next, { hostname: "old", snapshot_id: unfit, resume: true });
    expect(resumed).toMatchObject({ status: 200, body: { state: "running" } });
    for (const path of [machinePath(old), machinePath(next), snapshotPath(unfit)])
      await remove(at.node, path);
  });
}
