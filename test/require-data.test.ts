/** The mark of a data directory on a disk of its own, with real mounts in a mount namespace of each test. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "..");
/** An /etc of the test's own; `disk` and `other` are mounted at will; `require` prints how it ended. */
const PREPARE = `
  set -eu
  mount -t tmpfs none /etc && cd "$0"
  mkdir srv disk other
  mount -t tmpfs disk disk && mount -t tmpfs other other
  require() { if "$ROOT/scripts/require-data" "$@" 2>&1; then echo fine; else echo "refused with $?"; fi; }
  plug() { mount --bind "$1" "$2"; }
`;

let folder: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "viv data-")));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Runs the script. Returns what it printed, with the name of the folder left out. */
function inMounts(script: string): string {
  const { status, stdout, stderr } = spawnSync(
    "unshare",
    ["--mount", "bash", "-c", PREPARE + script, folder],
    {
      encoding: "utf8",
      // From a socket, as Node's pipes are, bash would read the user's own settings.
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: process.env.PATH, ROOT, HOME: folder },
    },
  );
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  return stdout.replaceAll(folder, "");
}

test("a data directory whose disk is not mounted any more is refused, with the reason, and stays empty", () => {
  const printed = inMounts(`
    plug disk srv; mkdir srv/control
    require --keep srv
    umount srv
    require srv; require --keep srv
    ls -A srv
    plug disk srv; require srv; ls srv`);
  expect(printed).toMatch(
    /^fine\nrequire-data: \/srv is in use, and its data is not there: it is on a disk of its own, which is not mounted\n/,
  );
  expect(printed).toMatch(
    /\nNothing was changed\. Mount that disk .*: rm \/etc\/vivarium\/data\/\w+\nrefused with 1\n/,
  );
  expect(printed.match(/refused with 1/g)).toHaveLength(2);
  expect(printed).toMatch(/refused with 1\nfine\ncontrol\ndata-id\n$/);
});

test("the same for a pool on a disk of its own, whose data directory is there", () => {
  const printed = inMounts(`
    plug other srv; mkdir srv/pool; plug disk srv/pool
    require --keep srv
    umount srv/pool
    require srv
    plug disk srv/pool; require srv`);
  expect(printed).toMatch(/^fine\nrequire-data: \/srv\/pool is in use, and its data is not there/);
  expect(printed).toMatch(/refused with 1\nfine\n$/);
});

test("a data directory behind a link that is gone with the disk is refused, by either of its names", () => {
  const printed = inMounts(`
    plug disk srv; mkdir srv/first; ln -s first srv/current
    require --keep srv/current
    umount srv
    require srv/current; require srv/first; require srv/second`);
  expect(printed.match(/^(fine|refused with 1)$/gm)).toEqual([
    "fine",
    "refused with 1",
    "refused with 1",
    "fine",
  ]);
});

test("another disk in its place is refused, and one that has a copy of the data is not", () => {
  const printed = inMounts(`
    plug disk srv; require --keep srv; umount srv
    plug other srv; require srv
    cp disk/data-id other/; require srv
    echo 1 >other/data-id; require srv`);
  expect(printed).toMatch(
    /^fine\nrequire-data: \/srv is in use, and its data is not there.*\n.*\nrefused with 1\nfine\n/,
  );
  expect(printed).toMatch(/\/srv has the data of another service.*\n.*\nrefused with 1\n$/);
});

test("no mark is kept of a directory on the host's own disk, nor once the data has moved there", () => {
  // The host's own disk is that of /etc.
  const printed = inMounts(`
    mkdir -p /etc/own/pool
    require --keep /etc/own; require --file /etc/own
    plug disk /etc/own; require --keep /etc/own; [ -e "$(require --file /etc/own | head -n 1)" ]
    id=$(cat /etc/own/data-id); umount /etc/own; echo "$id" >/etc/own/data-id
    require --keep /etc/own; require --file /etc/own; ls /etc`);
  expect(printed).toBe("fine\nfine\nfine\nfine\nfine\nown\n");
});

test("the mark ends with the data: an empty directory is a new one then, and nothing is left of it", () => {
  const printed = inMounts(`
    plug disk srv; require --keep srv; umount srv
    require --end srv; require srv; require --end srv; ls -A /etc`);
  expect(printed).toBe("fine\nfine\nfine\nfine\n");
});

test("two data directories have marks of their own, also if one is a copy of the other", () => {
  const printed = inMounts(`
    mkdir disk/a; require --keep disk/a; cp -r disk/a disk/b; require --keep disk/b
    ls /etc/vivarium/data | wc -l
    require --end disk/b; rm disk/a/data-id; require disk/b; require disk/a`);
  expect(printed).toMatch(/^fine\nfine\n2\nfine\nfine\nrequire-data: \/disk\/a is in use/);
});

test("a host whose own disk cannot be written runs without a mark", () => {
  const printed = inMounts("plug disk srv; mount -o remount,ro /etc; require --keep srv; require srv");
  expect(printed).toMatch(/no mark could be kept for \/srv in \/etc\/vivarium\/data\nfine\nfine\n$/);
});

test("viv up and a restore write nothing into the place of a disk that is not mounted, and say so", () => {
  const printed = inMounts(`
    plug disk srv; require --keep srv; umount srv
    viv() { "$ROOT/node_modules/.bin/node" "$ROOT/packages/cli/src/main.ts" "$@" 2>&1 || echo "ended with $?"; }
    viv up --data-dir srv; viv restore-backup --data-dir srv --undo
    ls -A srv`);
  expect(printed.match(/viv: \/srv is in use, and its data is not there/g)).toHaveLength(2);
  expect(printed.match(/ended with 1$/gm)).toHaveLength(2);
  expect(printed).toMatch(/ended with 1\n$/);
});
