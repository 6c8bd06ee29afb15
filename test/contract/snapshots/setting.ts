/** One machine is captured repeatedly, and every other start serves several checks, because machines are expensive. */
import { MachineStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, expect } from "vitest";
import { startCounter } from "../../support/guest-counter.ts";
import type { NodeCaller } from "../../support/node-caller.ts";
import {
  type ContractedNode,
  machinePath,
  newMachineId,
  refusal,
  sh,
  startSpec,
} from "../contracted-node.ts";

/** Prints the time of day in milliseconds, line after line, often enough that any moment in which it runs shows. */
const TELL_MOMENTS = `
import time
with open("moments", "a", buffering=1) as moments:
    while True:
        print(int(time.time() * 1000), file=moments)
        time.sleep(0.005)`;
export const snapshotPath = (id: string) => `/v1/snapshots/${id}`;

export interface SnapshotTraits {
  /** Whether memory is saved with the files, so that commands continue in a machine started from the snapshot. */
  hasMemory: boolean;
}

export interface SnapshottingNode extends ContractedNode {
  /** Run as root in the guest: from then on no copy of it can become another machine, while it continues itself. */
  makeUnfit: (machineId: string) => Promise<void>;
  /** Ends its QEMU from outside. */
  crash: (machineId: string) => Promise<void>;
}

export type Setting = ReturnType<typeof makeSetting>;

export function makeSetting(makeNode: () => Promise<SnapshottingNode>, traits: SnapshotTraits) {
  let node: SnapshottingNode;
  const used: string[] = [];
  const newMachine = () => {
    const id = newMachineId();
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
    expect(await start(source, { hostname: "source" })).toMatchObject({ status: 200 });
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

  return {
    /** Set once the tests run. */
    get node() {
      return node;
    },
    traits,
    newMachine,
    newSnapshot,
    /**
     * A running machine. When it was saved it had `before` in `file`, and a file `kept`. Now it has `after`, and no
     * `kept`.
     */
    source,
    saved,
    liveCapture,
    put,
    start,
    run,
  };
}

export const continueMachine = (node: NodeCaller, id: string) =>
  node.call("POST", `${machinePath(id)}/continue`);

export async function statusOf(node: NodeCaller, id: string): Promise<MachineStatus> {
  return MachineStatus.parse((await node.call("GET", machinePath(id))).body);
}

export async function expectHeld(node: NodeCaller, id: string): Promise<void> {
  expect(await statusOf(node, id)).toMatchObject({ state: "held" });
  const refused = await node.exec(id, { argv: ["true"] });
  expect(refused).toMatchObject({ status: 409, refusal: { code: "machine_held" } });
  expect(await node.putFile(id, "/workspace/x", Buffer.from("x"))).toMatchObject(
    refusal(409, "machine_held"),
  );
}

export async function remove(node: NodeCaller, path: string): Promise<void> {
  expect(await node.call("DELETE", path)).toMatchObject({ status: 204 });
}
