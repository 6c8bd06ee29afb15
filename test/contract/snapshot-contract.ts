/**
 * What every implementation of contract/node does with saved states: captures, held machines, starts from a snapshot.
 * One machine is captured over and over and every other is started for what it shows, because machines are expensive.
 */
import { MachineStatus, SnapshotList, SnapshotStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { expectCounting, startCounter } from "../support/guest-counter.ts";
import type { NodeCaller } from "../support/node-caller.ts";
import { type ContractedNode, startSpec } from "./node-contract.ts";

const sh = (script: string) => ["sh", "-c", script];
/** The time of day in milliseconds, line after line, so often that no moment in which it runs goes by untold. */
const TELL_MOMENTS = `
import time
with open("moments", "a", buffering=1) as moments:
    while True:
        print(int(time.time() * 1000), file=moments)
        time.sleep(0.005)`;
const machinePath = (id: string) => `/v1/machines/${id}`;
const snapshotPath = (id: string) => `/v1/snapshots/${id}`;

export interface SnapshotTraits {
  /** Whether memory is saved with the files: commands go on in a machine that is started from the snapshot. */
  hasMemory: boolean;
}

export interface SnapshottingNode extends ContractedNode {
  /** As root in the guest: no copy of it becomes another machine from now on, while it goes on itself. */
  makeUnfit: (machineId: string) => Promise<void>;
}

export function snapshotContract(makeNode: () => Promise<SnapshottingNode>, traits: SnapshotTraits): void {
  let node: SnapshottingNode;
  const used: string[] = [];
  const newMachine = () => {
    const id = `${randomId()}-1`;
    used.push(machinePath(id));
    return id;
  };
  const newSnapshot = () => {
    const id = `chk_${randomId()}`;
    used.push(snapshotPath(id));
    return id;
  };
  const source = newMachine();
  const saved = newSnapshot();
  const spec = startSpec({ hostname: "source" });
  const liveCapture = { machine_id: source, after: "continue" };

  const put = (id: string, body: object) => node.call("PUT", snapshotPath(id), body);
  const start = (id: string, over: object = {}) => node.call("PUT", machinePath(id), startSpec(over));
  const run = async (id: string, script: string) => {
    const done = await node.exec(id, { argv: sh(script) });
    expect(done).toMatchObject({ status: 200, exit: { exit_code: 0 } });
    return done.stdout.toString();
  };

  beforeAll(async () => {
    node = await makeNode();
    expect(await node.call("PUT", machinePath(source), spec)).toMatchObject({ status: 200 });
    await run(source, "echo before > file; echo kept > kept");
    await startCounter(node, source);
    await run(source, `python3 -c '${TELL_MOMENTS}' > /dev/null 2>&1 &`);
    expect(await put(saved, liveCapture)).toMatchObject({ status: 200 });
    await run(source, "echo after > file; rm kept");
  });
  afterAll(async () => {
    for (const path of used) await node?.call("DELETE", path);
    await node?.close?.();
  });

  describe("a capture with continue", () => {
    test("lets the machine go on from where it was, without gap or repeat", async () => {
      expect(await statusOf(node, source)).toMatchObject({ state: "running" });
      await expectCounting(node, source);
    });

    test("is described by its own status and in the list", async () => {
      const status = SnapshotStatus.parse((await node.call("GET", snapshotPath(saved))).body);
      expect(status).toMatchObject({
        snapshot_id: saved,
        state: "ready",
        template: "base",
        size: "small",
        timings: { stopped: expect.any(Number) },
      });
      expect(status.bytes).toBeGreaterThan(0);
      expect(Number.isNaN(Date.parse(status.created_at))).toBe(false);
      const { snapshots } = SnapshotList.parse((await node.call("GET", "/v1/snapshots")).body);
      expect(snapshots).toContainEqual(status);
      expect(status).not.toHaveProperty("machine_id");
    });

    test("asked for again, alone or twice at once, is the same snapshot; with another body a conflict", async () => {
      const first = await node.call("GET", snapshotPath(saved));
      expect(await put(saved, liveCapture)).toEqual(first);
      const twin = newSnapshot();
      const [one, other] = await Promise.all([put(twin, liveCapture), put(twin, liveCapture)]);
      expect(one).toMatchObject({ status: 200, body: { snapshot_id: twin } });
      expect(other).toEqual(one);
      const held = await put(saved, { machine_id: source, after: "hold" });
      expect(held).toMatchObject(refusal(409, "snapshot_conflict"));
      expect(await statusOf(node, source)).toMatchObject({ state: "running" });
      expect(await put(saved, { snapshot_id: twin })).toMatchObject(refusal(409, "snapshot_conflict"));
    });

    test("of two bodies under one name at once makes one and refuses the other", async () => {
      const id = newSnapshot();
      const answers = await Promise.all([put(id, liveCapture), put(id, { snapshot_id: saved })]);
      expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409]);
    });
  });

  describe("a machine from a snapshot", () => {
    const child = newMachine();
    const over = { hostname: "child", snapshot_id: saved };

    test("has the files of the instant, and an identity of its own", async () => {
      expect(await start(child, over)).toMatchObject({ status: 200, body: { state: "running" } });
      expect(await run(child, "cat file kept")).toBe("before\nkept\n");
      expect(await run(source, "cat file; ls kept 2> /dev/null || true")).toBe("after\n");
      if (!traits.hasMemory) return;
      expect(await run(child, "hostname")).toBe("child\n");
      expect(await run(child, "cat /etc/machine-id")).not.toBe(await run(source, "cat /etc/machine-id"));
    });

    test.runIf(traits.hasMemory)("has the commands of the instant, which go on", async () => {
      await expectCounting(node, child);
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
      await remove(node, machinePath(child));
      expect(await start(grandchild, { hostname: "child", snapshot_id: second, resume: true })).toMatchObject(
        {
          status: 200,
        },
      );
      expect(await run(grandchild, "cat file kept")).toBe("child\nkept\n");
      await remove(node, machinePath(grandchild));
    });
  });

  test("a machine that resumes stays the one that was saved", async () => {
    const resumed = newMachine();
    const over = { hostname: "source", snapshot_id: saved, resume: true };
    expect(await start(resumed, over)).toMatchObject({ status: 200 });
    expect(await run(resumed, "cat file")).toBe("before\n");
    expect(await run(resumed, "cat /etc/machine-id")).toBe(await run(source, "cat /etc/machine-id"));
    await remove(node, machinePath(resumed));
  });

  test("a machine started with hold stands still until it is continued, once or twice", async () => {
    const held = newMachine();
    const over = { hostname: "held", snapshot_id: saved, hold: true };
    expect(await start(held, over)).toMatchObject({ status: 200, body: { state: "held" } });
    await expectHeld(node, held);
    const [one, other] = await Promise.all([continueMachine(node, held), continueMachine(node, held)]);
    expect(one).toMatchObject({ status: 200, body: { machine_id: held, state: "running" } });
    expect(other).toEqual(one);
    expect(await run(held, "cat file")).toBe("before\n");
    expect(await continueMachine(node, held)).toEqual(one);
    await remove(node, machinePath(held));
  });

  test.runIf(traits.hasMemory)(
    "while it is held none of its processes runs, whatever it was told",
    async () => {
      const held = newMachine();
      const over = { hostname: "held", snapshot_id: saved, hold: true };
      const loadedAt = Date.now();
      expect(await start(held, over)).toMatchObject({ status: 200, body: { state: "held" } });
      const continuedAt = Date.now();
      expect(await continueMachine(node, held)).toMatchObject({ status: 200 });
      const moments = await eventually(async () => {
        const told = (await run(held, "cat moments")).trim().split("\n").map(Number);
        expect(told.at(-1)).toBeGreaterThanOrEqual(continuedAt);
        return told;
      }, 30_000);
      expect(moments.filter((moment) => moment >= loadedAt && moment < continuedAt)).toEqual([]);
      expect(await run(held, "hostname")).toBe("held\n");
      await remove(node, machinePath(held));
    },
  );

  test("a guest that is unfit to be copied is refused, held or not, and leaves the old machine as it is", async () => {
    const [old, next] = [newMachine(), newMachine()];
    const unfit = newSnapshot();
    expect(await start(old, { hostname: "old", snapshot_id: saved })).toMatchObject({ status: 200 });
    await node.makeUnfit(old);
    expect(await put(unfit, { machine_id: old, after: "continue" })).toMatchObject({ status: 200 });
    for (const more of [{ hold: true }, {}]) {
      const refused = await start(next, { hostname: "next", snapshot_id: unfit, ...more });
      expect(refused).toMatchObject(refusal(409, "guest_unfit"));
      expect(await node.call("GET", machinePath(next))).toMatchObject(refusal(404, "machine_not_found"));
    }
    expect(await statusOf(node, old)).toMatchObject({ state: "running" });
    expect(await run(old, "cat file")).toBe("before\n");
    // The name is free, and the saved state is as good as ever for whoever goes on as the one that was saved.
    const resumed = await start(next, { hostname: "old", snapshot_id: unfit, resume: true });
    expect(resumed).toMatchObject({ status: 200, body: { state: "running" } });
    for (const path of [machinePath(old), machinePath(next), snapshotPath(unfit)]) await remove(node, path);
  });

  describe("a capture with hold", () => {
    const snapshot = newSnapshot();

    test("leaves the machine standing still, and continued it goes on without gap or repeat", async () => {
      const saved = await put(snapshot, { machine_id: source, after: "hold" });
      expect(saved).toMatchObject({ status: 200, body: { machine_id: source } });
      await expectHeld(node, source);
      const refused = await put(newSnapshot(), liveCapture);
      expect(refused).toMatchObject(refusal(409, "machine_held"));
      expect(await continueMachine(node, source)).toMatchObject({ status: 200, body: { state: "running" } });
      await expectCounting(node, source);
    });

    test("asked for again after the machine went on, is the snapshot and holds nothing", async () => {
      const again = await put(snapshot, { machine_id: source, after: "hold" });
      expect(again).toMatchObject({ status: 200, body: { snapshot_id: snapshot, state: "ready" } });
      expect(await statusOf(node, source)).toMatchObject({ state: "running" });
    });

    test("is the last of a machine that is deleted while it stands still", async () => {
      const last = newMachine();
      const id = newSnapshot();
      await start(last, { hostname: "last", snapshot_id: saved });
      expect(await put(id, { machine_id: last, after: "hold" })).toMatchObject({ status: 200 });
      await remove(node, machinePath(last));
      expect(await continueMachine(node, last)).toMatchObject(refusal(404, "machine_not_found"));
      const again = await put(id, { machine_id: last, after: "hold" });
      expect(again).toMatchObject({ status: 200, body: { snapshot_id: id } });
    });
  });

  test("a copy is a snapshot of its own, and deleting one harms neither machines nor copies", async () => {
    const [original, copy] = [newSnapshot(), newSnapshot()];
    const [before, after] = [newMachine(), newMachine()];
    await put(original, liveCapture);
    const made = await put(copy, { snapshot_id: original });
    expect(made).toMatchObject({ status: 200, body: { snapshot_id: copy, state: "ready", size: "small" } });
    await start(before, { hostname: "before", snapshot_id: original });
    await remove(node, snapshotPath(original));
    await remove(node, snapshotPath(original));
    expect(await node.call("GET", snapshotPath(original))).toMatchObject(refusal(404, "snapshot_not_found"));
    expect(await put(copy, { snapshot_id: original })).toEqual(made);
    expect(await start(after, { hostname: "after", snapshot_id: copy })).toMatchObject({ status: 200 });
    expect(await run(after, "cat file")).toBe("after\n");
    await remove(node, snapshotPath(copy));
    expect(await run(before, "cat file")).toBe("after\n");
    expect(await run(after, "cat file")).toBe("after\n");
    const late = newSnapshot();
    expect(await put(late, { machine_id: after, after: "continue" })).toMatchObject({ status: 200 });
    for (const path of [machinePath(before), machinePath(after), snapshotPath(late)])
      await remove(node, path);
  });

  test("refuses what it does not know, and what does not fit", async () => {
    const nobody = newMachine();
    const none = newSnapshot();
    const unknown = refusal(404, "snapshot_not_found");
    expect(await node.call("GET", snapshotPath(none))).toMatchObject(unknown);
    expect(await node.call("GET", snapshotPath("UPPER"))).toMatchObject(unknown);
    expect(await start(nobody, { snapshot_id: none })).toMatchObject(unknown);
    expect(await put(none, { snapshot_id: newSnapshot() })).toMatchObject(unknown);
    const ghost = { machine_id: nobody, after: "hold" };
    expect(await put(none, ghost)).toMatchObject(refusal(404, "machine_not_found"));
    expect(await put(none, { machine_id: source })).toMatchObject(refusal(400, "invalid"));
    expect(await put(none, { machine_id: source, after: "stop" })).toMatchObject(refusal(400, "invalid"));
    expect(await start(nobody, { snapshot_id: "x" })).toMatchObject(refusal(400, "invalid"));
    const large = await start(nobody, { snapshot_id: saved, size: "large" });
    expect(large).toMatchObject(refusal(400, "invalid"));
    expect(await continueMachine(node, nobody)).toMatchObject(refusal(404, "machine_not_found"));
    expect(await node.call("GET", machinePath(nobody))).toMatchObject(refusal(404, "machine_not_found"));
    expect(await node.call("GET", snapshotPath(none))).toMatchObject(unknown);
  });

  test("a machine that is deleted in the middle of its capture is gone, and nothing is left of the snapshot", async () => {
    const doomed = newMachine();
    const id = newSnapshot();
    await start(doomed, { hostname: "doomed", snapshot_id: saved });
    const capture = put(id, { machine_id: doomed, after: "hold" });
    await remove(node, machinePath(doomed));
    const answer = await capture;
    const found = await node.call("GET", snapshotPath(id));
    // Whichever came first: all of the snapshot, or a machine that was not there any more and none of it.
    if (answer.status === 200) expect(found).toEqual(answer);
    else {
      expect(answer).toMatchObject(refusal(404, "machine_not_found"));
      expect(found).toMatchObject(refusal(404, "snapshot_not_found"));
    }
    expect(await node.call("GET", machinePath(doomed))).toMatchObject(refusal(404, "machine_not_found"));
  });

  test.runIf(traits.hasMemory)("a machine that ended by itself cannot be captured", async () => {
    const ended = newMachine();
    await start(ended, { hostname: "ended", snapshot_id: saved });
    await node.exec(ended, { argv: sh("sudo sh -c 'echo b > /proc/sysrq-trigger'") }).catch(() => {});
    await eventually(async () => expect(await statusOf(node, ended)).toMatchObject({ state: "ended" }));
    const refused = await put(newSnapshot(), { machine_id: ended, after: "continue" });
    expect(refused).toMatchObject(refusal(410, "machine_gone"));
    await remove(node, machinePath(ended));
  });
}

const continueMachine = (node: NodeCaller, id: string) => node.call("POST", `${machinePath(id)}/continue`);

async function statusOf(node: NodeCaller, id: string): Promise<MachineStatus> {
  return MachineStatus.parse((await node.call("GET", machinePath(id))).body);
}

async function expectHeld(node: NodeCaller, id: string): Promise<void> {
  expect(await statusOf(node, id)).toMatchObject({ state: "held" });
  const refused = await node.exec(id, { argv: ["true"] });
  expect(refused).toMatchObject({ status: 409, refusal: { code: "machine_held" } });
  expect(await node.putFile(id, "/workspace/x", Buffer.from("x"))).toMatchObject(
    refusal(409, "machine_held"),
  );
}

async function remove(node: NodeCaller, path: string): Promise<void> {
  expect(await node.call("DELETE", path)).toMatchObject({ status: 204 });
}

function refusal(status: number, code: string) {
  return { status, body: { code, message: expect.stringMatching(/./) } };
}
