/** Captures and starts that are refused. */
import { expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { machinePath, refusal } from "../contracted-node.ts";
import { continueMachine, remove, type Setting, snapshotPath, statusOf } from "./setting.ts";

export function snapshotRefusals(at: Setting): void {
  const { newMachine, newSnapshot, put, saved, source, start } = at;

  test("refuses unknown names and malformed bodies", async () => {
    const nobody = newMachine();
    const none = newSnapshot();
    const unknown = refusal(404, "snapshot_not_found");
    expect(await at.node.call("GET", snapshotPath(none))).toMatchObject(unknown);
    for (const method of ["GET", "DELETE"])
      expect(await at.node.call(method, snapshotPath("UPPER"))).toMatchObject(unknown);
    expect(await start(nobody, { snapshot_id: none })).toMatchObject(unknown);
    expect(await put(none, { snapshot_id: newSnapshot() })).toMatchObject(unknown);
    const ghost = { machine_id: nobody, after: "hold" };
    expect(await put(none, ghost)).toMatchObject(refusal(404, "machine_not_found"));
    expect(await put(none, { machine_id: source })).toMatchObject(refusal(400, "invalid"));
    expect(await put(none, { machine_id: source, after: "stop" })).toMatchObject(refusal(400, "invalid"));
    expect(await start(nobody, { snapshot_id: "x" })).toMatchObject(refusal(400, "invalid"));
    const large = await start(nobody, { snapshot_id: saved, size: "large" });
    expect(large).toMatchObject(refusal(400, "invalid"));
    expect(await continueMachine(at.node, nobody)).toMatchObject(refusal(404, "machine_not_found"));
    expect(await at.node.call("GET", machinePath(nobody))).toMatchObject(refusal(404, "machine_not_found"));
    expect(await at.node.call("GET", snapshotPath(none))).toMatchObject(unknown);
  });

  test("a machine that is deleted in the middle of its capture is gone, and nothing is left of the snapshot", async () => {
    const doomed = newMachine();
    const id = newSnapshot();
    await start(doomed, { hostname: "doomed", snapshot_id: saved });
    const capture = put(id, { machine_id: doomed, after: "hold" });
    await remove(at.node, machinePath(doomed));
    const answer = await capture;
    const found = await at.node.call("GET", snapshotPath(id));
    // Either outcome: a whole snapshot, or machine_gone without one.
    if (answer.status === 200) expect(found).toEqual(answer);
    else {
      expect(answer).toMatchObject(refusal(404, "machine_not_found"));
      expect(found).toMatchObject(refusal(404, "snapshot_not_found"));
    }
    expect(await at.node.call("GET", machinePath(doomed))).toMatchObject(refusal(404, "machine_not_found"));
  });

  test("a machine that ended by itself stays listed, and is neither captured nor started again", async () => {
    const ended = newMachine();
    const over = { hostname: "ended", snapshot_id: saved };
    await start(ended, over);
    await at.node.crash(ended);
    await eventually(async () =>
      expect(await statusOf(at.node, ended)).toMatchObject({
        state: "ended",
        reason: expect.stringMatching(/./),
      }),
    );
    const refused = await put(newSnapshot(), { machine_id: ended, after: "continue" });
    expect(refused).toMatchObject(refusal(410, "machine_gone"));
    expect(await start(ended, over)).toMatchObject(refusal(410, "machine_gone"));
    await remove(at.node, machinePath(ended));
    expect(await start(ended, over)).toMatchObject({ status: 200, body: { state: "running" } });
    await remove(at.node, machinePath(ended));
  });
}
