/** A service whose data directory is deleted under it: it keeps its machines for as long as it runs. */
import { rm } from "node:fs/promises";
import { Client } from "@vivarium/sdk";
import { expect, onTestFinished, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { readProcess } from "../support/host-processes.ts";
import { client, service } from "../support/http.ts";
import { machinePid, machineSlot, slotNumbers } from "../support/machine-traces.ts";
import { servicePid, startService } from "../support/service.ts";

const BACK_MS = 90_000;

/** The other service of this host starts its node, which removes orphans. */
async function restartOtherNode(): Promise<void> {
  process.kill(servicePid(service, "node"), "SIGKILL");
  await eventually(async () => {
    const { session_id } = await client.sessions.create();
    await client.sessions.waitUntilLive(session_id);
    await client.sessions.delete(session_id);
  }, BACK_MS);
}

test("another service of the host takes its machines only once it is gone", async () => {
  const deleted = await startService();
  onTestFinished(() => deleted.stop().catch(() => {}));
  const { url, apiKey, dataDir, pid: supervisor } = deleted.facts;
  const { sessions } = new Client({ url, apiKey, retries: 0 });
  const { session_id } = await sessions.create();
  await sessions.waitUntilLive(session_id);
  const [pid, slot] = [machinePid(dataDir, session_id), machineSlot(dataDir, session_id)];
  await rm(dataDir, { recursive: true });

  await restartOtherNode();
  expect(readProcess(pid)?.argv[0]).toContain("qemu");
  expect(slotNumbers(dataDir)).toContain(slot);

  // Its machine outlives it, and is an orphan from then on.
  process.kill(supervisor, "SIGTERM");
  await eventually(() => expect(readProcess(supervisor)).toBe(undefined), BACK_MS);
  expect(readProcess(pid)?.argv[0]).toContain("qemu");
  await restartOtherNode();
  await eventually(() => expect([readProcess(pid), slotNumbers(dataDir)]).toEqual([undefined, []]), BACK_MS);
});
