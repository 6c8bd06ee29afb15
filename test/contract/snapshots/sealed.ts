/** Machines that are sealed with a state key, and what is saved of them. */
import { randomBytes } from "node:crypto";
import { STATE_KEY_HEADER } from "@vivarium/contract/node";
import { expect, test } from "vitest";
import { machinePath, refusal, startSpec } from "../contracted-node.ts";
import { remove, type Setting, snapshotPath } from "./setting.ts";

const newKey = () => ({ [STATE_KEY_HEADER]: randomBytes(32).toString("base64url") });
const REFUSED = refusal(409, "wrong_state_key");

export function sealed(at: Setting): void {
  const { newMachine, newSnapshot, run } = at;
  const put = (path: string, body: object, key?: Record<string, string>) =>
    at.node.call("PUT", path, body, key);

  test("a sealed machine and its snapshots need their state key, and keep what they had", async () => {
    const [key, other] = [newKey(), newKey()];
    const [machine, child] = [newMachine(), newMachine()];
    const [snapshot, copy] = [newSnapshot(), newSnapshot()];
    const start = (id: string, over: object, with_?: Record<string, string>) =>
      put(machinePath(id), startSpec({ hostname: "sealed", ...over }), with_);

    expect(await start(machine, {}, key)).toMatchObject({ status: 200 });
    expect(await start(machine, {}, key)).toMatchObject({ status: 200 });
    for (const wrong of [undefined, other]) expect(await start(machine, {}, wrong)).toMatchObject(REFUSED);
    await run(machine, "echo kept > file");

    const capture = { machine_id: machine, after: "hold" };
    for (const wrong of [undefined, other])
      expect(await put(snapshotPath(snapshot), capture, wrong)).toMatchObject(REFUSED);
    // A refused capture has changed nothing.
    expect(await run(machine, "cat file")).toBe("kept\n");
    for (const _again of [1, 2])
      expect(await put(snapshotPath(snapshot), capture, key)).toMatchObject({ status: 200 });
    expect(await put(snapshotPath(snapshot), capture)).toMatchObject(REFUSED);
    await remove(at.node, machinePath(machine));

    const from = { snapshot_id: snapshot };
    for (const wrong of [undefined, other]) {
      expect(await put(snapshotPath(copy), from, wrong)).toMatchObject(REFUSED);
      expect(await start(child, from, wrong)).toMatchObject(REFUSED);
    }
    expect(await put(snapshotPath(copy), from, key)).toMatchObject({ status: 200 });
    await remove(at.node, snapshotPath(snapshot));
    expect(await start(child, { snapshot_id: copy }, key)).toMatchObject({ status: 200 });
    expect(await run(child, "cat file")).toBe("kept\n");
    for (const path of [machinePath(child), snapshotPath(copy)]) await remove(at.node, path);
  });

  test("a key that is none is refused, and not repeated", async () => {
    const answer = await put(machinePath(newMachine()), startSpec(), { [STATE_KEY_HEADER]: "not-a-key" });
    expect(answer).toMatchObject(refusal(400, "invalid"));
    expect(JSON.stringify(answer)).not.toContain("not-a-key");
  });
}
