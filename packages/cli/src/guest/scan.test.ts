import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Session } from "@vivarium/sdk";
import { expect, onTestFinished, test } from "vitest";
import { readTree, scanGuest } from "./scan.ts";

const record = (type: string, size: number, time: string, path: string, target = "") =>
  Buffer.from([type, size, time, path, target].map((field) => `${field}\0`).join(""), "latin1");
const read = (...records: Buffer[]) => readTree(Buffer.concat(records));
const ROOT = record("d755", 4096, "1600000000.5", "");

test("a tree is what find prints of it, with names of any characters", () => {
  const tree = read(
    ROOT,
    record("f6755", 3, "1600000001.9999", "a b'c\nd"),
    record("l777", 1, "1600000002", "link", "/etc/passwd"),
    record("s755", 0, "1600000002", "socket"),
  );
  expect([...tree]).toEqual([
    ["", { kind: "directory", bytes: 4096, mode: 0o755, modifiedAt: 1_600_000_000 }],
    ["a b'c\nd", { kind: "file", bytes: 3, mode: 0o755, modifiedAt: 1_600_000_001 }],
    ["link", { kind: "link", bytes: 1, mode: 0o777, modifiedAt: 1_600_000_002, target: "/etc/passwd" }],
    ["socket", { kind: "other", bytes: 0, mode: 0o755, modifiedAt: 1_600_000_002 }],
  ]);
});

test("a file whose name is no UTF-8 cannot be named here, and is left out", () => {
  expect(read(ROOT, record("f644", 3, "1", "caf\xe9")).get("caf\ufffd")?.kind).toBe("other");
});

test.each(["../outside", "a/../../outside", "/etc/passwd", "./x", "a//b", "link/inside", "nowhere/file"])(
  "a session that lists %j is not believed",
  (path) => {
    const records = [ROOT, record("d755", 0, "1", "a"), record("l777", 0, "1", "link", "/etc")];
    expect(() => read(...records, record("f644", 0, "1", path))).toThrow("not its own");
  },
);

test("a second root is not believed either", () => {
  expect(() => read(ROOT, ROOT)).toThrow("not its own");
});

test.each(["l777", "s755", "f644"])(
  "what is listed twice, the second time as %s, stays what it was",
  (type) => {
    const tree = read(
      ROOT,
      record("d755", 0, "1", "a"),
      record("f644", 1, "1", "a/b"),
      record(type, 0, "1", "a", "/etc"),
    );
    expect([...tree].map(([path, { kind }]) => [path, kind])).toEqual([
      ["", "directory"],
      ["a", "directory"],
      ["a/b", "file"],
    ]);
  },
);

/** A session whose commands run here. */
const here = {
  async *execStream({ command: [program = "", ...args] }: { command: string[] }) {
    const { status, stdout, stderr } = spawnSync(program, args);
    yield { type: "stdout", data: stdout };
    yield { type: "stderr", data: stderr };
    yield { type: "exit", data: { exit_code: status, timed_out: false } };
  },
} as unknown as Session;

test("a link at the root is followed where it is a human's own, and listed as a link where links are kept", async () => {
  const folder = mkdtempSync(join(tmpdir(), "scan-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, "tree"));
  writeFileSync(join(folder, "tree/file"), "12345");
  symlinkSync("tree", join(folder, "link"));
  const kindsAt = async (name: string, isLinkKept: boolean) => {
    const tree = await scanGuest(here, join(folder, name), { isLinkKept });
    return tree && [...tree].map(([path, { kind, bytes }]) => [path, kind, kind === "file" ? bytes : 0]);
  };
  const whole = [
    ["", "directory", 0],
    ["file", "file", 5],
  ];
  expect(await kindsAt("link", false)).toEqual(whole);
  expect(await kindsAt("link", true)).toEqual([["", "link", 0]]);
  expect(await kindsAt("tree", true)).toEqual(whole);
  expect(await kindsAt("nothing", true)).toBe(undefined);
});
