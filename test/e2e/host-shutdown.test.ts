/** The host goes down in order: `viv down --pause` saves every live session, and the next start wakes it by its use. */
import { Client } from "@vivarium/sdk";
import { expect, onTestFinished, test } from "vitest";
import { startVivWith } from "../support/command-line.ts";
import { eventually } from "../support/eventually.ts";
import { readProcess } from "../support/host-processes.ts";
import { machineTraces } from "../support/machine-traces.ts";
import { startService } from "../support/service.ts";

const COUNTER = "(n=0; while :; do n=$((n+1)); echo $n >> count; sleep 0.2; done) > /dev/null 2>&1 &";

test("viv down --pause saves memory and processes of every live session, and they continue after the next start", async () => {
  const first = await startService();
  onTestFinished(() => first.stop().catch(() => {}));
  const { dataDir, url, apiKey, pid } = first.facts;
  const before = new Client({ url, apiKey, retries: 0 }).sessions;
  const ids = [await before.create(), await before.create()].map(({ session_id }) => session_id);
  for (const id of ids) {
    await before.waitUntilLive(id);
    await before.exec(id, { command: ["sh", "-c", `echo ${id} > note; ${COUNTER}`] });
  }
  const env = { VIV_URL: url, VIV_API_KEY: apiKey };
  const down = await startVivWith({ env }, "down", "--pause", "--data-dir", dataDir).ended;
  expect(down).toMatchObject({ code: 0, err: expect.stringContaining("2 live sessions to pause") });
  expect(machineTraces(dataDir).processes).toBe(0);
  await eventually(() => expect(readProcess(pid)).toBeUndefined());

  const next = await startService({ dataDir });
  onTestFinished(() => next.stop());
  const { sessions } = new Client({ url: next.facts.url, apiKey, retries: 0 });
  for (const id of ids) expect(await sessions.get(id)).toMatchObject({ state: "paused" });
  for (const id of ids) {
    expect((await sessions.exec(id, { command: ["cat", "note"] })).stdout).toBe(`${id}\n`);
    const count = async () => Number((await sessions.exec(id, { command: ["tail", "-n1", "count"] })).stdout);
    const woken = await count();
    await eventually(async () => expect(await count()).toBeGreaterThan(woken));
    await sessions.delete(id);
  }
});
