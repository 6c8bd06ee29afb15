import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { identify } from "@vivarium/kit/process-identity";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Keeper } from "./keeper.ts";
import { adoptProcess, type Running, startProcess } from "./running.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "viv-keeper-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const env = { PATH: process.env.PATH ?? "" };
const start = (script: string, limitMs = 5000 * SLOWNESS) =>
  startProcess(["sh", "-c", script], {
    env,
    cwd: "/",
    logFile: path.join(dir, "out.log"),
    stop: { signal: "SIGTERM", limitMs },
  });

const wanted = new AbortController().signal;

function keep(launch: (signal: AbortSignal) => Promise<Running>) {
  const reports: string[] = [];
  return {
    keeper: new Keeper("thing", { launch, report: (message) => void reports.push(message) }),
    reports,
  };
}

const pausesOf = (reports: string[]) => reports.map((report) => report.match(/[\d.]+ s/)?.[0]);

test("starts a killed process again and stops it for good on request", async () => {
  const launched: Running[] = [];
  const { keeper, reports } = keep(async () => {
    const running = start("sleep 60");
    launched.push(running);
    return running;
  });
  await keeper.start(wanted);
  process.kill(launched[0]?.pid ?? 0, "SIGKILL");
  await expect.poll(() => launched).toHaveLength(2);
  expect(reports).toEqual(["thing ended (killed by SIGKILL); starting it again in 0.2 s"]);
  await keeper.stop();
  expect(identify(launched[1]?.pid ?? 0)).toBeUndefined();
  expect(launched).toHaveLength(2);
});

test("waits longer after each early death, and a failing launch counts as one", async () => {
  const { keeper, reports } = keep(async () => {
    throw new Error("no disk");
  });
  void keeper.start(wanted);
  await expect.poll(() => reports).toHaveLength(3);
  expect(pausesOf(reports)).toEqual(["0.2 s", "0.4 s", "0.8 s"]);
  expect(reports[0]).toContain("no disk");
  await keeper.stop();
});

test("a launch that fails after a long time counts as an early death, also after one that succeeded", async () => {
  const now = vi.spyOn(performance, "now");
  let launches = 0;
  const { keeper, reports } = keep(async () => {
    launches++;
    if (launches === 1) return start("exit 0");
    now.mockReturnValue(performance.now() + 60_000);
    throw new Error("no disk");
  });
  await keeper.start(wanted);
  await expect.poll(() => reports).toHaveLength(3);
  expect(pausesOf(reports)).toEqual(["0.2 s", "0.4 s", "0.8 s"]);
  await keeper.stop();
  now.mockRestore();
});

test("counts every death, and begins with a short pause again after a healthy run", async () => {
  const now = vi.spyOn(performance, "now");
  const { keeper, reports } = keep(async () => {
    if (reports.length === 2) setTimeout(() => now.mockReturnValue(performance.now() + 60_000), 50);
    return start(reports.length === 2 ? "sleep 1" : "exit 0");
  });
  await keeper.start(wanted);
  await expect.poll(() => reports, { timeout: 20_000 }).toHaveLength(3);
  expect(pausesOf(reports)).toEqual(["0.2 s", "0.4 s", "0.2 s"]);
  expect(keeper.deaths).toBe(3);
  await keeper.stop();
  now.mockRestore();
});

test("gives up a process that cannot be started, or is no longer wanted", async () => {
  const { keeper } = keep(async () => {
    throw new Error("no disk");
  });
  await expect(keeper.start(wanted)).rejects.toThrow("thing cannot be started: no disk");
  await keeper.stop();

  const stopping = new AbortController();
  let seen: AbortSignal | undefined;
  const slow = keep((signal) => {
    seen = signal;
    return new Promise((_, reject) =>
      signal.addEventListener("abort", () => reject(new Error("not wanted"))),
    );
  }).keeper;
  const started = slow.start(stopping.signal);
  stopping.abort(new Error("enough"));
  await expect(started).rejects.toThrow("enough");
  expect(seen?.aborted).toBe(false);
  await slow.stop();
  expect(seen?.aborted).toBe(true);
});

test("a process that ignores the request to stop is killed after its time", async () => {
  const running = start("trap '' TERM; echo ready; while :; do sleep 0.1; done", 300);
  const said = () => readFile(path.join(dir, "out.log"), "utf8");
  await expect.poll(said).toContain("ready");
  await running.stop();
  expect(await running.ended).toBe("killed by SIGKILL");
});

test("the end of standard input alone ends a well-behaved process", async () => {
  const running = start("trap '' TERM; cat; exit 7");
  await running.stop();
  expect(await running.ended).toMatch(/exit code 7|SIGTERM/);
});

test("an adopted process is watched and stopped like an own one", async () => {
  const own = start("sleep 60");
  const identity = identify(own.pid);
  if (!identity) throw new Error("the process is gone");
  const adopted = adoptProcess(identity, { signal: "SIGTERM", limitMs: 5000 * SLOWNESS });
  await adopted.stop();
  expect(await adopted.ended).toBe("gone");
  expect(await own.ended).toBe("killed by SIGTERM");
});

test("a program that does not exist is an ending, not a crash", async () => {
  const running = startProcess(["/no/such/program"], { env, cwd: "/", logFile: path.join(dir, "out.log") });
  expect(await running.ended).toContain("ENOENT");
});

test("a stop in a manner of its own leaves the input open, and a plain one after it closes it", async () => {
  const file = path.join(dir, "out.log");
  const script = `exec 3<&0; trap "echo asked" USR2; trap "" TERM; cat <&3 & echo ready
    while kill -0 $! 2>/dev/null; do wait $!; done; echo closed`;
  const running = startProcess(["bash", "-c", script], { env, cwd: "/", logFile: file });
  const log = () => readFile(file, "utf8").catch(() => "");
  await expect.poll(log).toContain("ready");
  const slow = running.stop({ signal: "SIGUSR2", limitMs: 20_000 * SLOWNESS, keepsInput: true });
  await expect.poll(log).toContain("asked");
  expect(await log()).not.toContain("closed");
  await running.stop();
  await slow;
  expect(await log()).toContain("closed");
});
