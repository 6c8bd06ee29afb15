/** Machines that are held from their start, or by a capture. */
import { describe, expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { expectCounting } from "../../support/guest-counter.ts";
import { machinePath, refusal, sh } from "../contracted-node.ts";
import { continueMachine, expectHeld, remove, type Setting, statusOf } from "./setting.ts";

export function heldMachines(at: Setting): void {
  const { liveCapture, newMachine, newSnapshot, put, run, saved, source, start } = at;

  test("a machine started with hold stays stopped until it is continued, once or twice", async () => {
    const held = newMachine();
    const over = { hostname: "held", snapshot_id: saved, hold: true };
    expect(await start(held, over)).toMatchObject({ status: 200, body: { state: "held" } });
    await expectHeld(at.node, held);
    const network = { generation: 2, egress: { mode: "deny", allow: [] }, exposed: [] };
    const changed = await at.node.call("PUT", `${machinePath(held)}/network`, network);
    expect(changed).toEqual({ status: 200, body: { generation: 2 } });
    const [one, other] = await Promise.all([continueMachine(at.node, held), continueMachine(at.node, held)]);
    expect(one).toMatchObject({ status: 200, body: { machine_id: held, state: "running" } });
    expect(other).toEqual(one);
    expect(await run(held, "cat file")).toBe("before\n");
    expect(await continueMachine(at.node, held)).toEqual(one);
    await remove(at.node, machinePath(held));
  });

  test.runIf(at.traits.hasMemory)(
    "while it is held none of its processes runs, whatever it was asked",
    async () => {
      const held = newMachine();
      const over = { hostname: "held", snapshot_id: saved, hold: true };
      const loadedAt = Date.now();
      expect(await start(held, over)).toMatchObject({ status: 200, body: { state: "held" } });
      const continuedAt = Date.now();
      expect(await continueMachine(at.node, held)).toMatchObject({ status: 200 });
      const moments = await eventually(async () => {
        const printed = (await run(held, "cat moments")).trim().split("\n").map(Number);
        expect(printed.at(-1)).toBeGreaterThanOrEqual(continuedAt);
        return printed;
      });
      // The guest's clock was set by a message, and is behind by the time that the message took.
      const behindMs = Math.max(0, Date.now() - Number(await run(held, "date +%s%3N")));
      const whileHeld = (moment: number) => moment >= loadedAt && moment + behindMs < continuedAt;
      expect(moments.filter(whileHeld)).toEqual([]);
      expect(await run(held, "hostname")).toBe("held\n");
      await remove(at.node, machinePath(held));
    },
  );

  test("a machine without commands reports that none continues", async () => {
    const { status, body } = await at.node.guest(source, "GET", "/commands");
    expect([status, body]).toEqual([200, { going_on: 0 }]);
  });

  test.runIf(at.traits.hasMemory)(
    "a command that was running continues in a machine that is started from the snapshot, which says so until its end",
    async () => {
      const [id, copy] = [newSnapshot(), newMachine()];
      const started = Promise.withResolvers<void>();
      const listener = new AbortController();
      const { signal } = listener;
      const untilAsked = "until [ -e end ]; do sleep 0.1; done; echo done > ended";
      const command = at.node
        .exec(source, { argv: sh(untilAsked) }, { signal, onStarted: started.resolve })
        .catch(() => {});
      await started.promise;
      expect(await put(id, liveCapture)).toMatchObject({ status: 200 });
      expect(await start(copy, { hostname: "copy", snapshot_id: id })).toMatchObject({ status: 200 });
      expect((await at.node.guest(copy, "GET", "/commands")).body).toEqual({ going_on: 1 });
      await run(copy, "touch end");
      await eventually(async () => {
        expect((await at.node.guest(copy, "GET", "/commands")).body).toEqual({ going_on: 0 });
      });
      expect(await run(copy, "cat ended")).toBe("done\n");
      listener.abort();
      await command;
      await remove(at.node, machinePath(copy));
    },
  );

  describe("a capture with hold", () => {
    const snapshot = newSnapshot();

    test("leaves the machine stopped; continued, it runs on without gap or repeat", async () => {
      const held = await put(snapshot, { machine_id: source, after: "hold" });
      expect(held).toMatchObject({ status: 200, body: { machine_id: source } });
      await expectHeld(at.node, source);
      const refused = await put(newSnapshot(), liveCapture);
      expect(refused).toMatchObject(refusal(409, "machine_held"));
      expect(await continueMachine(at.node, source)).toMatchObject({
        status: 200,
        body: { state: "running" },
      });
      await expectCounting(at.node, source);
    });

    test("repeated after the machine continued, is the same snapshot and stops nothing", async () => {
      const again = await put(snapshot, { machine_id: source, after: "hold" });
      expect(again).toMatchObject({ status: 200, body: { snapshot_id: snapshot, state: "ready" } });
      expect(await statusOf(at.node, source)).toMatchObject({ state: "running" });
    });

    test("is the last state of a machine that is deleted while it is stopped", async () => {
      const last = newMachine();
      const id = newSnapshot();
      await start(last, { hostname: "last", snapshot_id: saved });
      expect(await put(id, { machine_id: last, after: "hold" })).toMatchObject({ status: 200 });
      await remove(at.node, machinePath(last));
      expect(await continueMachine(at.node, last)).toMatchObject(refusal(404, "machine_not_found"));
      const again = await put(id, { machine_id: last, after: "hold" });
      expect(again).toMatchObject({ status: 200, body: { snapshot_id: id } });
    });
  });
}
