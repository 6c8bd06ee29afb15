/** An agent that root in its guest has replaced: its own session suffers, no other session of the same node does. */
import { setTimeout as sleep } from "node:timers/promises";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { residentBytes } from "../support/host-processes.ts";
import { MANNERS, type Manner, takeOver } from "../support/hostile-guest.ts";
import { ask, client, service, withSession } from "../support/http.ts";
import { machinePid } from "../support/machine-traces.ts";
import { servicePid } from "../support/service.ts";
import { openTerminal } from "../support/web-socket.ts";

const MIB = 1024 * 1024;
const ROUNDS = size({ ci: 2, full: 8 });
const GROWTH_BYTES = 64 * MIB;
/** Possible answers to a call of the bad session, besides invented ones; the last one is that of its end. */
const OWN_TROUBLE = [404, 408, 409, 410, 500, 502, 503, 504];
/** A correct agent has answered by then. */
const ANSWERS_WITHIN_MS = 5_000 * SLOWNESS;

let good: string;
beforeAll(async () => {
  ({ session_id: good } = await client.sessions.create({ on_pty_detach: "keep_live" }));
  await client.sessions.waitUntilLive(good);
});
afterAll(() => client.sessions.delete(good));

/** One call of every kind, again and again, ignoring the answers. */
async function provoke(id: string, until: AbortSignal): Promise<number[]> {
  const path = `/v1/sessions/${id}`;
  const calls = [
    () => ask(`${path}/exec`, { body: { command: ["true"], timeout_ms: 3_000 * SLOWNESS } }),
    () => ask(`${path}/files?path=a`),
    () => ask(`${path}/files`, { method: "PUT", body: { path: "a", content: "a" } }),
    () => ask(`${path}/processes`),
  ];
  const statuses: number[] = [];
  const repeat = async (call: () => ReturnType<typeof ask>) => {
    while (!until.aborted) statuses.push((await call()).status);
  };
  await Promise.all(calls.map(repeat));
  return statuses;
}

/** Returns the time of the slowest round. */
async function useNormally(id: string): Promise<number> {
  let slowestMs = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const began = performance.now();
    const exec = await client.sessions.exec(id, { command: ["echo", `${round}`], timeout_ms: 60_000 });
    expect(exec).toMatchObject({ stdout: `${round}\n`, exit_code: 0 });
    const path = `/v1/sessions/${id}/files`;
    const written = await ask(path, { method: "PUT", body: { path: "a", content: `round ${round}` } });
    expect(written.status).toBe(200);
    expect((await ask(`${path}?path=a`)).body.content).toBe(`round ${round}`);
    const terminal = await openTerminal(id);
    terminal.type(`echo seen$((${round} + 1))\n`);
    await terminal.shows(new RegExp(`seen${round + 1}`));
    await terminal.close();
    slowestMs = Math.max(slowestMs, performance.now() - began);
    await sleep(300);
  }
  return Math.round(slowestMs);
}

test.each(Object.entries(MANNERS) as [Manner, string][])(
  "one of %s, which %s",
  { timeout: 400_000 * SLOWNESS },
  async (manner) => {
    await withSession(async (bad) => {
      const alone = await useNormally(good);
      const pids = [servicePid(service, "node"), servicePid(service, "control")];
      const before = pids.map(residentBytes);
      await client.sessions.exec(bad, { command: takeOver(manner) });
      await eventually(async () => {
        const call = ask(`/v1/sessions/${bad}/exec`, {
          body: { command: ["echo", "mine"], timeout_ms: 3_000 * SLOWNESS },
        });
        const answer = await Promise.race([call, sleep(ANSWERS_WITHIN_MS, undefined)]);
        expect(answer?.body.stdout).not.toBe("mine\n");
      }, 60_000);
      const over = new AbortController();
      const provoked = provoke(bad, over.signal);
      const beside = await useNormally(good).finally(() => over.abort());
      const growth = pids.map((pid, i) => residentBytes(pid) - (before[i] ?? 0));
      expect(await ask(`/v1/sessions/${bad}`, { method: "DELETE" })).toMatchObject({ status: 204 });
      const statuses = await provoked;
      console.log(
        `${manner}: a round took at most ${alone} ms alone, ${beside} ms beside it; ` +
          `grew MiB ${growth.map((bytes) => Math.round(bytes / MIB))}; it was answered ${tally(statuses)}`,
      );
      expect(statuses.length).toBeGreaterThan(0);
      if (manner !== "lies") for (const status of statuses) expect(OWN_TROUBLE).toContain(status);
      for (const bytes of growth) expect(bytes).toBeLessThan(GROWTH_BYTES);
      expect(() => machinePid(service.dataDir, bad)).toThrow("has no machine");
      expect(pids).toEqual([servicePid(service, "node"), servicePid(service, "control")]);
    });
  },
);

function tally(statuses: number[]): string {
  const counts = new Map<number, number>();
  for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1);
  return JSON.stringify(Object.fromEntries(counts));
}
