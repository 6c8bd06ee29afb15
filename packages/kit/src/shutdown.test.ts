import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { afterEach, expect, test } from "vitest";

const SERVICE = `
import { shutdownOnSignal } from ${JSON.stringify(new URL("shutdown.ts", import.meta.url).href)};
const say = (line) => process.stdout.write(line + "\\n");
const until = (signal) => new Promise((resolve) => signal.addEventListener("abort", resolve));
shutdownOnSignal([{ name: "end", run: async () => void (process.argv[2] === "silent" && say("ended")) }], {
  onPhase: process.argv[2] === "silent" ? undefined : (name, outcome) => say(name + " " + outcome),
  preparation: {
    name: "prepare",
    signal: "SIGUSR2",
    limitMs: Number(process.argv[1]),
    run: (stopped) => (say("preparing"), process.argv[2] === "at once" ? Promise.resolve() : until(stopped)),
  },
});
setInterval(() => {}, 1000);
say("ready");
`;

let child: ChildProcess | undefined;
afterEach(() => child?.kill("SIGKILL"));

async function startService(limitMs: number, manner = "until stopped") {
  const lines: string[] = [];
  const service = spawn(process.execPath, ["--input-type=module", "-e", SERVICE, String(limitMs), manner], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { NODE_NO_WARNINGS: "1" },
  });
  child = service;
  let text = "";
  const ended = once(service, "close");
  const said = Promise.withResolvers<void>();
  const preparing = Promise.withResolvers<void>();
  service.stdout.on("data", (chunk: Buffer) => {
    text += chunk;
    lines.splice(0, lines.length, ...text.trim().split("\n"));
    if (lines.includes("ready")) said.resolve();
    if (lines.includes("preparing")) preparing.resolve();
  });
  await said.promise;
  return { service, lines, ended, preparing: preparing.promise };
}

test("a plain stop runs the phases without the preparation", async () => {
  const { service, lines, ended } = await startService(10_000);
  service.kill("SIGTERM");
  expect((await ended)[0]).toBe(0);
  expect(lines).toEqual(["ready", "end done"]);
});

test("the other signal prepares first, once, and then runs the phases", async () => {
  const { service, lines, ended } = await startService(10_000, "at once");
  service.kill("SIGUSR2");
  service.kill("SIGUSR2");
  expect((await ended)[0]).toBe(0);
  expect(lines).toEqual(["ready", "preparing", "prepare done", "end done"]);
});

test("a service that watches no phase runs them all the same", async () => {
  const { service, lines, ended } = await startService(10_000, "silent");
  service.kill("SIGTERM");
  expect((await ended)[0]).toBe(0);
  expect(lines).toEqual(["ready", "ended"]);
});

test("a plain stop ends a preparation that has not ended", async () => {
  const { service, lines, ended, preparing } = await startService(10_000);
  service.kill("SIGUSR2");
  await preparing;
  service.kill("SIGTERM");
  expect((await ended)[0]).toBe(0);
  expect(lines.filter((line) => line.startsWith("end"))).toEqual(["end done"]);
});

test("a preparation that takes too long is left", async () => {
  const { service, lines, ended } = await startService(50);
  service.kill("SIGUSR2");
  expect((await ended)[0]).toBe(0);
  expect(lines).toEqual(["ready", "preparing", "prepare late", "end done"]);
});
