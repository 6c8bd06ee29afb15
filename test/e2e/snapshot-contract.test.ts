import { afterAll, beforeAll, expect } from "vitest";
import { snapshotContract } from "../contract/snapshot-contract.ts";
import { KEEP_ITS_NAME } from "../support/hostile-guest.ts";
import { service } from "../support/http.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { suspendControl } from "../support/service.ts";

// Control soon removes snapshots that no row of its own names.
let control: { resume: () => void };
beforeAll(() => {
  control = suspendControl(service);
});
afterAll(() => control.resume());

snapshotContract(
  async () => {
    const node = nodeCaller(service.nodeSocket);
    const makeUnfit = async (machineId: string) => {
      expect(await node.exec(machineId, { argv: KEEP_ITS_NAME })).toMatchObject({ exit: { exit_code: 0 } });
    };
    const crash = async (machineId: string) => {
      const argv = ["sudo", "sh", "-c", "echo b > /proc/sysrq-trigger"];
      await node.exec(machineId, { argv }).catch(() => {});
    };
    return { ...node, makeUnfit, crash };
  },
  { hasMemory: true },
);
