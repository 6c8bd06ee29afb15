/** The behaviour of every implementation of contract/node with volumes, the disks that outlive machines. */
import { VolumeList, VolumeStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ContractedNode, machinePath, newMachineId, refusal, sh, startSpec } from "./contracted-node.ts";

/** `hasFiles`: volumes are mounted in guests, and keep files. */
export function volumeContract(
  makeNode: () => Promise<ContractedNode>,
  { hasFiles }: { hasFiles: boolean },
): void {
  let node: ContractedNode;
  const used: string[] = [];
  const call = (method: string, path: string, body?: unknown) => node.call(method, path, body);
  const newVolume = () => `vol_${randomId()}`;
  const put = (id: string, size_gb = 1) => call("PUT", `/v1/volumes/${id}`, { size_gb });
  const remove = (id: string) => call("DELETE", `/v1/volumes/${id}`);
  const volumeOf = async (id: string) =>
    VolumeList.parse((await call("GET", "/v1/volumes")).body).volumes.find((one) => one.volume_id === id);
  const start = (machineId: string, volume_id: string, over: object = {}) => {
    used.push(machineId);
    return call("PUT", machinePath(machineId), startSpec({ volume: { volume_id, size_gb: 1 }, ...over }));
  };
  const stop = async (machineId: string) =>
    expect(await call("DELETE", machinePath(machineId))).toMatchObject({ status: 204 });
  const run = async (machineId: string, script: string) => {
    if (!hasFiles) return;
    const { stdout, stderr, exit } = await node.exec(machineId, { argv: sh(script) });
    expect({ stdout: String(stdout), stderr: String(stderr), code: exit?.exit_code }).toMatchObject({
      code: 0,
    });
  };

  beforeAll(async () => {
    node = await makeNode();
  });
  afterAll(async () => {
    for (const machineId of used) await call("DELETE", machinePath(machineId));
    await node?.close?.();
  });

  describe("a volume", () => {
    test("is made once, grows, never shrinks, and is gone once it was deleted twice", async () => {
      const id = newVolume();
      const made = await put(id);
      expect(VolumeStatus.parse(made.body)).toMatchObject({ volume_id: id, size_gb: 1 });
      expect(await put(id)).toMatchObject({ status: 200, body: { size_gb: 1 } });
      expect(await put(id, 2)).toMatchObject({ status: 200, body: { size_gb: 2 } });
      expect(await put(id, 1)).toMatchObject({ status: 200, body: { size_gb: 2 } });
      expect(await volumeOf(id)).toMatchObject({ size_gb: 2 });
      expect(await remove(id)).toMatchObject({ status: 204 });
      expect(await remove(id)).toMatchObject({ status: 204 });
      expect(await volumeOf(id)).toBeUndefined();
    });

    test("of another name or without a size is refused", async () => {
      expect(await call("PUT", "/v1/volumes/vol_x", { size_gb: 1 })).toMatchObject(
        refusal(404, "volume_not_found"),
      );
      expect(await call("PUT", `/v1/volumes/${newVolume()}`, { size_gb: 0 })).toMatchObject(
        refusal(400, "invalid"),
      );
    });

    test("that does not exist starts no machine, and leaves none", async () => {
      const machineId = newMachineId();
      expect(await start(machineId, newVolume())).toMatchObject(refusal(404, "volume_not_found"));
      expect(await call("GET", machinePath(machineId))).toMatchObject(refusal(404, "machine_not_found"));
    });

    test("has one machine at a time, keeps its files for the next one, and is not deleted meanwhile", async () => {
      const id = newVolume();
      await put(id);
      const [first, second] = [newMachineId(), newMachineId()];
      expect(await start(first, id)).toMatchObject({ status: 200, body: { state: "running" } });
      expect(await start(first, id)).toMatchObject({ status: 200 });
      expect(await volumeOf(id)).toMatchObject({ machine_id: first });
      expect(await start(second, id)).toMatchObject(refusal(409, "volume_held"));
      expect(await remove(id)).toMatchObject(refusal(409, "volume_held"));
      expect(await put(id, 2)).toMatchObject(refusal(409, "volume_held"));
      // Not synced: the end of the machine writes it out.
      await run(first, "id -un; echo kept > /volume/file");
      await stop(first);
      expect((await volumeOf(id))?.machine_id).toBeUndefined();
      const grown = { volume: { volume_id: id, size_gb: 2 } };
      expect(await start(second, id, grown)).toMatchObject({ status: 200 });
      expect(await volumeOf(id)).toMatchObject({ machine_id: second, size_gb: 2 });
      await run(second, 'test "$(cat /volume/file)" = kept');
      await run(second, 'test "$(df --output=size -BM /volume | tail -n 1 | tr -d M)" -gt 1500');
      await stop(second);
      expect(await remove(id)).toMatchObject({ status: 204 });
    });
  });

  describe("a snapshot of a machine with a volume", () => {
    test("has nothing of it: the machine continues with it, and the next one gets it as it is then", async () => {
      const id = newVolume();
      await put(id);
      const [first, second, other] = [newMachineId(), newMachineId(), newMachineId()];
      const snapshots = [`chk_${randomId()}`, `pau_${randomId()}`] as const;
      await start(first, id);
      await run(first, "echo one > /volume/file; echo one > /workspace/file");
      const save = (snapshot: string, after: string) =>
        call("PUT", `/v1/snapshots/${snapshot}`, { machine_id: first, after });
      expect(await save(snapshots[0], "continue")).toMatchObject({ status: 200 });
      await run(
        first,
        'test "$(cat /volume/file)" = one; echo two > /volume/file; echo two > /workspace/file',
      );
      expect(await save(snapshots[1], "hold")).toMatchObject({ status: 200 });
      // A held machine has it, until it is deleted.
      expect(await volumeOf(id)).toMatchObject({ machine_id: first });
      expect(await call("POST", `${machinePath(first)}/continue`)).toMatchObject({ status: 200 });
      await run(first, 'test "$(cat /volume/file)" = two; echo three > /volume/file');

      const loaded = { snapshot_id: snapshots[0], resume: true, hold: true };
      expect(await start(second, id, loaded)).toMatchObject({ status: 200, body: { state: "held" } });
      expect(await call("POST", `${machinePath(second)}/continue`)).toMatchObject(
        refusal(409, "volume_held"),
      );
      await stop(first);
      expect(await call("POST", `${machinePath(second)}/continue`)).toMatchObject({
        status: 200,
        body: { state: "running" },
      });
      await run(second, 'test "$(cat /volume/file)" = three; test "$(cat /workspace/file)" = one');

      used.push(other);
      const without = startSpec({ snapshot_id: snapshots[0] });
      expect(await call("PUT", machinePath(other), without)).toMatchObject({ status: 200 });
      await run(other, "! mountpoint -q /volume && ! test -e /volume/file");
      for (const machineId of [second, other]) await stop(machineId);
      for (const snapshot of snapshots) await call("DELETE", `/v1/snapshots/${snapshot}`);
      expect(await remove(id)).toMatchObject({ status: 204 });
    });
  });
}
