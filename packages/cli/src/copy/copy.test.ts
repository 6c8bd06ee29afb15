import { createHash } from "node:crypto";
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { copy } from "./copy.ts";
import type { Entry, Place, Tree } from "./entry.ts";
import { inParallel } from "./in-parallel.ts";
import { localPlace } from "./local-place.ts";
import { noProgress, renderProgress } from "./progress.ts";
import { finishingLines } from "./session-place.ts";

const MODIFIED_AT = 1_600_000_000;
const file = (bytes: number, mode = 0o644): Entry => ({ kind: "file", bytes, mode, modifiedAt: MODIFIED_AT });
const directory: Entry = { kind: "directory", bytes: 0, mode: 0o755, modifiedAt: MODIFIED_AT };
const link = (target: string): Entry => ({ ...file(0, 0o777), kind: "link", target });
/** The source has the file that this machine has: `x`. */
const hashOfX = async (paths: readonly string[]) =>
  new Map(paths.map((each) => [each, createHash("sha256").update("x").digest("hex")]));
const { signal } = new AbortController();
const unused = () => {
  throw new Error("a source is only read");
};

/** A source with any answers that a test gives it. */
function source(entries: Record<string, Entry>, read: (path: string) => AsyncIterable<Uint8Array>): Place {
  return {
    nameOf: (name) => name,
    scan: async (_path, { depth } = {}) =>
      new Map(Object.entries(entries).slice(0, depth === 0 ? 1 : undefined)) as Tree,
    hash: async () => new Map(),
    read,
    put: unused,
    makeDirectories: unused,
    finish: unused,
  };
}
async function* bytes(...chunks: string[]) {
  for (const chunk of chunks) yield Buffer.from(chunk);
}

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "viv-copy-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));
const copyTo = (place: Place, to: string, from = "src") =>
  copy({ source: place, target: localPlace(signal), progress: noProgress }, { from, to, recursive: true });

describe("a copy to this machine", () => {
  test("leaves the old file, and nothing else, when the new one breaks off", async () => {
    await writeFile(path.join(dir, "file"), "old");
    const place = source({ "": file(10) }, async function* () {
      yield Buffer.from("half");
      throw new Error("broke off");
    });
    await expect(copyTo(place, path.join(dir, "file"))).rejects.toThrow("broke off");
    expect(await readdir(dir)).toEqual(["file"]);
    expect(await readFile(path.join(dir, "file"), "utf8")).toBe("old");
  });

  test("follows no link below its top, not even to a directory", async () => {
    const outside = path.join(dir, "outside");
    await mkdir(outside);
    await mkdir(path.join(dir, "to"));
    await symlink(outside, path.join(dir, "to/door"));
    const place = source({ "": directory, door: directory, "door/file": file(1) }, () => bytes("x"));
    await expect(copyTo(place, path.join(dir, "to"), "src/.")).rejects.toThrow("is to be a directory");
    expect(await readdir(outside)).toEqual([]);
  });

  test("makes no link at its top, where the next copy would follow it to wherever the session likes", async () => {
    const outside = path.join(dir, "outside");
    await mkdir(outside);
    const to = path.join(dir, "to");
    const asLink = source({ "": link(outside) }, () => bytes("x"));
    await expect(copyTo(asLink, to)).rejects.toThrow("src is a link that leads nowhere");
    const asDirectory = source({ "": directory, file: file(1) }, () => bytes("x"));
    await copyTo(asDirectory, to);
    expect(await readdir(outside)).toEqual([]);
    expect(await readdir(to)).toEqual(["file"]);
  });

  test("goes twice through the human's own link, into the directory that it leads to", async () => {
    const real = path.join(dir, "real");
    const to = path.join(dir, "to");
    await mkdir(real);
    await symlink(real, to);
    const place = source({ "": directory, file: file(1) }, () => bytes("x"));
    for (const from of ["src", "src", "src/.", "src/."]) await copyTo(place, to, from);
    expect((await readdir(real)).toSorted()).toEqual(["file", "src"]);
    expect((await lstat(to)).isSymbolicLink()).toBe(true);
  });

  test.each([
    ["a directory", { "": directory, file: file(1) }],
    ["a file", { "": file(1, 0o755) }],
  ])("follows no link that an earlier copy has made, when %s of its name comes next", async (_what, next) => {
    const outside = path.join(dir, "outside");
    const victim = path.join(dir, "victim");
    await mkdir(outside);
    await writeFile(victim, "x", { mode: 0o600 });
    const to = path.join(dir, "to");
    await mkdir(to);
    const leadsTo = "file" in next ? outside : victim;
    await copyTo(
      source({ "": directory, sub: link(leadsTo) }, () => bytes("x")),
      to,
      "src/.",
    );
    // A link at the path of a directory is refused; one at the path of a file is replaced.
    await copyTo({ ...source(next, () => bytes("x")), hash: hashOfX }, to, "src/sub").catch(
      (error: unknown) => expect(String(error)).toContain("is to be a directory, and is none there"),
    );
    expect(await readdir(outside)).toEqual([]);
    expect((await stat(victim)).mode & 0o777).toBe(0o600);
  });

  test("replaces a link by the file itself", async () => {
    await writeFile(path.join(dir, "target"), "untouched");
    await symlink("target", path.join(dir, "file"));
    await copyTo(
      source({ "": file(3) }, () => bytes("new")),
      path.join(dir, "file"),
    );
    expect(await readFile(path.join(dir, "target"), "utf8")).toBe("untouched");
    expect(await readFile(path.join(dir, "file"), "utf8")).toBe("new");
  });

  test("gives no rights beyond the umask, and the time of the source", async () => {
    await copyTo(
      source({ "": file(1, 0o777) }, () => bytes("x")),
      path.join(dir, "file"),
    );
    const { mode, mtimeMs } = await stat(path.join(dir, "file"));
    expect(mode & 0o7777).toBe(0o777 & ~process.umask());
    expect(mtimeMs).toBe(MODIFIED_AT * 1000);
  });

  test("names entries that are no files, and counts the copied ones", async () => {
    const pipe: Entry = { ...file(0), kind: "other" };
    const place = source({ "": directory, a: file(2), b: file(1), pipe }, () => bytes("x"));
    expect(await copyTo(place, path.join(dir, "to"))).toEqual({
      files: 2,
      bytes: 3,
      skipped: 0,
      problems: [expect.stringContaining("src/pipe was left out")],
    });
  });
});

test("a directory that could not be read is named, and the others are copied", async () => {
  const place = source(
    { "": directory, a: file(1), closed: { ...directory, unread: "permission denied" } },
    () => bytes("x"),
  );
  expect(await copyTo(place, path.join(dir, "to"))).toMatchObject({
    files: 1,
    problems: ["src/closed was not read whole: permission denied"],
  });
  expect((await readdir(path.join(dir, "to"))).toSorted()).toEqual(["a", "closed"]);
});

describe("finishing in a session", () => {
  test("few commands set many modes and times, deepest first, with any characters in the names", () => {
    expect(
      finishingLines([
        { path: "/w/dir", entry: { ...directory, mode: 0o555 }, isNew: true },
        { path: "/w/dir/it's", entry: file(1, 0o755), isNew: true },
        { path: "/w/dir/plain", entry: file(1), isNew: true },
        { path: "/w/dir/was", entry: file(1), isNew: false },
        { path: "/w/link", entry: { ...file(1), kind: "link", target: "a b" }, isNew: true },
      ]),
    ).toEqual([
      "ln -sfT -- 'a b' '/w/link'",
      `touch -c -d @${MODIFIED_AT} -- '/w/dir/it'\\''s' '/w/dir/plain' '/w/dir/was'`,
      "chmod 644 -- '/w/dir/was'",
      "chmod 755 -- '/w/dir/it'\\''s'",
      "chmod 555 -- '/w/dir'",
    ]);
  });
});

test("in parallel, at most so many are under way, and a failure ends it once they have ended", async () => {
  let underWay = 0;
  let most = 0;
  const begun: number[] = [];
  const work = inParallel([1, 2, 3, 4, 5, 6], 2, async (item) => {
    begun.push(item);
    most = Math.max(most, ++underWay);
    await new Promise((resolve) => setImmediate(resolve));
    underWay--;
    if (item === 3) throw new Error("third");
  });
  await expect(work).rejects.toThrow("third");
  expect({ most, underWay }).toEqual({ most: 2, underWay: 0 });
  expect(begun).not.toContain(6);
});

test("progress shows share, amount, pace and files", () => {
  const state = { label: "src", done: { bytes: 512, files: 1 }, total: { bytes: 1024, files: 4 } };
  expect(renderProgress({ ...state, elapsedMs: 1000 })).toBe(
    "[############............]  50%  512 B of 1.0 KiB, 512 B/s, 1 of 4 files  src",
  );
});
