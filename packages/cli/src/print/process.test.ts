import { expect, test } from "vitest";
import { renderProcess, renderProcesses } from "./process.ts";

const now = new Date("2027-01-01T10:00:00Z");
const web = {
  name: "web",
  pid: 7,
  command: ["python3", "-m", "http.server"],
  state: "running" as const,
  keep_alive: true,
  started_at: "2027-01-01T08:00:00Z",
};
const build = {
  name: "build",
  pid: 9,
  command: ["make", "a\nb"],
  state: "exited" as const,
  keep_alive: false,
  started_at: "2027-01-01T09:59:00Z",
  ended_at: "2027-01-01T09:59:30Z",
  exit_code: 0,
};

test("processes are a table, and cannot break it", () => {
  expect(renderProcesses([web, build], now).split("\n")).toEqual([
    "NAME   STATE    PID  EXIT  AGE  COMMAND                 KEEPS ALIVE",
    "web    running  7          2h   python3 -m http.server  yes",
    "build  exited   9    0     1m   make a b",
  ]);
});

test("columns with nothing in them are left out", () => {
  expect(renderProcesses([{ ...web, keep_alive: false }], now)).toBe(
    "NAME  STATE    PID  AGE  COMMAND\nweb   running  7    2h   python3 -m http.server",
  );
});

test("no processes at all say how to begin", () => {
  expect(renderProcesses([], now)).toContain("viv start");
});

test("one process shows its end when it has one", () => {
  expect(renderProcess(web)).not.toContain("exit code");
  expect(renderProcess(build)).toContain("exit code   0");
});
