/** Data that a session must not lose, however often it is saved, copied and restored. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { Client, type SessionRecord } from "@vivarium/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { raiseCeiling } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { lastCount, START_COUNTER, TELL_MEMORY } from "../support/guest-programs.ts";
import { sh } from "../support/http.ts";
import { machinePid } from "../support/machine-traces.ts";
import { type Service, startService } from "../support/service.ts";

const CYCLES = size({ ci: 2, full: 25 });
const CHILDREN = size({ ci: 3, full: 16 });
/** Checkpoints, and the order in which a session is restored to them. */
const STATES = size({ ci: 3, full: 5 });
const BACK_TO = [2, 0, 4, 1, 3, 4, 0].filter((state) => state < STATES);
const IDLE_MS = 1_000;
const MIB = 1024 * 1024;

let own: Service;
let client: Client;

beforeAll(async () => {
  own = await startService({ env: { VIV_FORK_CHILDREN: String(CHILDREN) } });
  client = new Client({ url: own.facts.url, apiKey: own.facts.apiKey, retries: 0 });
  await raiseCeiling(own.facts, 40);
});
afterAll(() => own?.stop());

async function run(id: string, script: string): Promise<string> {
  const done = await client.sessions.exec(id, { command: sh(script), timeout_ms: 60_000 * SLOWNESS });
  expect(done, script).toMatchObject({ exit_code: 0 });
  return done.stdout;
}

async function withCounter<T>(use: (id: string) => Promise<T>, request = {}): Promise<T> {
  const { session_id: id } = await client.sessions.create(request);
  try {
    const started = await client.sessions.exec(id, { command: START_COUNTER });
    expect(started, started.stdout + started.stderr).toMatchObject({ exit_code: 0 });
    return await use(id);
  } finally {
    await client.sessions.delete(id);
  }
}

const tokenOf = (memory: string) => memory.split(" ")[0] as string;

const until = (id: string, state: string): Promise<SessionRecord> =>
  eventually(async () => {
    const record = await client.sessions.get(id);
    expect(record.state).toBe(state);
    return record;
  });

describe(`${CYCLES} times saved and woken`, () => {
  const pauses: Record<string, { request: object; pause: (id: string) => Promise<unknown> }> = {
    "by pause": { request: {}, pause: (id) => client.sessions.pause(id) },
    "by its idle timeout": { request: { idle_timeout_ms: IDLE_MS }, pause: (id) => until(id, "paused") },
  };
  test.concurrent.each(Object.keys(pauses))(
    "%s: files, a counting process and its open connection are as they were",
    async (how) => {
      const { request, pause } = pauses[how] as (typeof pauses)[string];
      await withCounter(async (id) => {
        const written: Record<string, string> = {};
        let counted = 0;
        for (let cycle = 1; cycle <= CYCLES; cycle++) {
          const content = `${how} ${cycle} ${Math.random()}`.repeat(500);
          written[`f${cycle}`] = createHash("sha256").update(content).digest("hex");
          await run(id, `printf %s '${content}' > /workspace/f${cycle}`);
          await pause(id);
          const [sums = "", log = ""] = (
            await run(id, "cd /workspace && sha256sum f* && echo -- && cat counter")
          ).split("--\n");
          const found = Object.fromEntries(
            sums
              .trimEnd()
              .split("\n")
              .map((line) => line.split("  ").reverse() as [string, string]),
          );
          expect(found).toEqual(written);
          const count = lastCount(log);
          expect(count).toBeGreaterThan(counted);
          counted = count;
        }
      }, request);
    },
    10 * 60_000,
  );
});

test(
  `a live session forks into ${CHILDREN}: each child has the instant's files and memory, and is itself`,
  async () => {
    await withCounter(async (id) => {
      await run(
        id,
        "mkdir -p tree/a/b && for i in $(seq 50); do echo $i > tree/a/b/$i; done; ln -s a tree/link",
      );
      const tree = "find tree -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum";
      const expected = await run(id, tree);
      const machine = machinePid(own.facts.dataDir, id);
      const before = lastCount(await run(id, "cat counter"));
      const { parent_session_id, children } = await client.sessions.fork(id, { count: CHILDREN });
      const after = lastCount(await run(id, "cat counter"));
      try {
        expect(parent_session_id).toBe(id);
        expect(new Set([id, ...children]).size).toBe(CHILDREN + 1);
        expect(machinePid(own.facts.dataDir, id)).toBe(machine);
        const seen = [];
        // One after the other: emulated machines share two processors.
        for (const child of children) {
          expect((await client.sessions.get(child)).state).toBe("live");
          const look = `${TELL_MEMORY()}; ${tree}; hostname; cat /etc/machine-id counter`;
          const [memory = "", sum, hostname, machineId, ...log] = (await run(child, look)).split("\n");
          expect(`${sum}\n`).toBe(expected);
          expect(hostname).toBe(child);
          const [token, count] = memory.split(" ");
          expect(Number(count)).toBeGreaterThanOrEqual(before);
          expect(lastCount(log.join("\n"))).toBeGreaterThanOrEqual(before);
          seen.push({ token, machineId });
        }
        expect(new Set(seen.map(({ token }) => token)).size).toBe(1);
        expect(new Set(seen.map(({ machineId }) => machineId)).size).toBe(CHILDREN);
        expect(after).toBeGreaterThan(before);
        expect(lastCount(await run(id, "cat counter"))).toBeGreaterThan(after);
      } finally {
        await Promise.all(children.map((child) => client.sessions.delete(child)));
      }
    });
  },
  10 * 60_000,
);

test(
  "a session goes back to each of its checkpoints, in any order, and they outlive it",
  async () => {
    const usedBytes = () => {
      // The file system also contains data of other services.
      const printed = execFileSync("du", ["-s", "-B1", join(own.facts.dataDir, "pool")], {
        encoding: "utf8",
      });
      return Number.parseInt(printed, 10);
    };
    const baseline = usedBytes();
    const states: { id: string; files: string; token: string }[] = [];
    const { session_id: id } = await client.sessions.create();
    await client.sessions.exec(id, { command: START_COUNTER });
    for (let i = 1; i <= STATES; i++) {
      await run(id, `head -c ${i}00000 /dev/urandom > f${i}; rm -f f${i - 2}`);
      const files = await run(id, "sha256sum f*");
      const token = tokenOf(await run(id, TELL_MEMORY("USR2")));
      const { checkpoint_id } = await client.checkpoints.create(id, { name: `state-${i}` });
      states.push({ id: checkpoint_id, files, token });
    }
    for (const i of BACK_TO) {
      const state = states[i] as (typeof states)[number];
      const record = await client.sessions.restore(id, state.id);
      expect(record).toMatchObject({ session_id: id, state: "live" });
      expect(await run(id, "sha256sum f*")).toBe(state.files);
      expect(tokenOf(await run(id, TELL_MEMORY()))).toBe(state.token);
      lastCount(await run(id, "cat counter"));
    }
    await client.sessions.delete(id);
    for (const state of states) {
      const { session_id: started } = await client.checkpoints.start(state.id);
      expect(await run(started, "sha256sum f*")).toBe(state.files);
      expect(await run(started, "hostname")).toBe(`${started}\n`);
      await client.sessions.delete(started);
    }
    for (const state of states) await client.checkpoints.delete(state.id);
    await eventually(() => {
      expect(readdirSync(join(own.facts.dataDir, "pool/s"))).toEqual([]);
      expect(usedBytes() - baseline).toBeLessThan(MIB);
    }, 90_000);
  },
  10 * 60_000,
);
