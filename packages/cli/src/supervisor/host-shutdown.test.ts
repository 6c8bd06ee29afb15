import { tmpdir } from "node:os";
import { expect, test } from "vitest";
import { isForHostShutdown } from "./host-shutdown.ts";

/** A host that answers with these states, one after the other, and then with the last one. */
function hostThatIs(states: string | string[], systemdDir = tmpdir(), failure = 1) {
  const asked: string[] = [];
  const run = async (command: string, args: string[]) => {
    const state = [states].flat().at(Math.min(asked.length, [states].flat().length - 1)) ?? "";
    asked.push([command, ...args].join(" "));
    // As systemctl does, which fails in every state but `running`.
    return { code: state === "running" ? 0 : failure, stdout: `${state}\n`, stderr: "" };
  };
  return { asked, host: { systemdDir, run, pauseMs: 0 } };
}

test.each([
  ["SIGTERM", "stopping", true],
  ["SIGTERM", "running", false],
  ["SIGTERM", "degraded", false],
  ["SIGTERM", "", false],
  ["SIGINT", "stopping", false],
  ["SIGUSR2", "running", true],
] as const)("%s while systemd is %j: sessions are paused: %s", async (signal, state, expected) => {
  expect(await isForHostShutdown(signal, hostThatIs(state).host)).toBe(expected);
});

test("a host without systemd is not asked", async () => {
  const { asked, host } = hostThatIs("stopping", "/no/such/directory");
  expect([await isForHostShutdown("SIGTERM", host), asked]).toEqual([false, []]);
});

test("a systemd that answers late is asked again: sessions of a host that goes down are paused", async () => {
  const { asked, host } = hostThatIs(["", "unknown", "", "stopping"]);
  expect([await isForHostShutdown("SIGTERM", host), asked.length]).toEqual([true, 4]);
});

test("a systemd that never answers is asked a few times, and one that answers or is not there once", async () => {
  const [silent, running, none] = [
    hostThatIs(""),
    hostThatIs(["running", "stopping"]),
    hostThatIs("", tmpdir(), 127),
  ];
  for (const { host } of [silent, running, none])
    expect(await isForHostShutdown("SIGTERM", host)).toBe(false);
  expect([silent, running, none].map(({ asked }) => asked.length)).toEqual([6, 1, 1]);
});
