/** How set-up reads its command line. It is stopped at its first step, by an unknown system. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

const SETUP = join(import.meta.dirname, "../setup");

let folder: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "viv setup-")));
  // Set-up reads this file as a shell does, and prints this name of the system when it stops.
  writeFileSync(
    join(folder, "os-release"),
    'ID=none VERSION_ID=0 PRETTY_NAME="[data $DATA_DIR] [cache $CACHE_DIR] [certificates $CA_BUNDLE]"\n',
  );
});
afterEach(() => rmSync(folder, { recursive: true }));

function setup(options: string[], env: Record<string, string> = {}) {
  const { status, stdout, stderr } = spawnSync(SETUP, options, {
    cwd: folder,
    encoding: "utf8",
    env: {
      PATH: process.env.PATH,
      VIV_OS_RELEASE: join(folder, "os-release"),
      VIV_CACHE_DIR: join(folder, "cache"),
      ...env,
    },
  });
  return { status, stdout, stderr };
}

test("relative paths begin where the caller is, also those of the environment", () => {
  const places = [`[data ${folder}/data]`, `[certificates ${folder}/own.pem]`].join(" ");
  const cached = places.replace("] [", `] [cache ${folder}/cache] [`);
  expect(setup(["--data-dir", "data", "--ca-bundle=own.pem"]).stderr).toContain(cached);
  const env = { VIV_DATA_DIR: "data", VIV_CACHE_DIR: "cache", VIV_CA_BUNDLE: "./own.pem" };
  expect(setup([], env).stderr).toContain(cached);
});

test("whole paths need no place to begin at, as where the caller's folder was removed", () => {
  const script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" --data-dir "$1"';
  const env = {
    PATH: process.env.PATH,
    VIV_OS_RELEASE: join(folder, "os-release"),
    VIV_CACHE_DIR: join(folder, "cache"),
  };
  const options = { cwd: folder, encoding: "utf8", env } as const;
  const { stderr } = spawnSync("sh", ["-c", script, SETUP, join(folder, "data")], options);
  expect(stderr).toContain(`[data ${folder}/data]`);
});

test.each([[["--data-dir"]], [["--data-dir="]], [["--ca-bundle"]], [["--ca-bundle="]], [["--frob"]]])(
  "%j is wrong usage, after which nothing is done",
  (options) => {
    expect(setup(options)).toEqual({ status: 2, stdout: "", stderr: expect.stringContaining("--help") });
  },
);

test("no home is needed", () => {
  writeFileSync(join(folder, "os-release"), 'ID=none VERSION_ID=0 PRETTY_NAME="[home $HOME]"');
  expect(setup([]).stderr).toContain("this is [home /root]");
});

test("whether something is left to do does not depend on who may use KVM", () => {
  const script = `
    set -e
    mount -t tmpfs none /dev
    mknod -m 666 /dev/null c 1 3
    mknod -m 000 /dev/kvm c 10 232
    print='. scripts/setup/fingerprint.sh; fingerprint "$0"'
    bash -c "$print" "$1"
    setpriv --inh-caps=-all --bounding-set=-dac_override bash -c '[ ! -w /dev/kvm ]'
    setpriv --inh-caps=-all --bounding-set=-dac_override bash -c "$print" "$1"`;
  const printed = execFileSync("unshare", ["--mount", "bash", "-c", script, "bash", folder], {
    encoding: "utf8",
    cwd: join(import.meta.dirname, ".."),
    stdio: ["ignore", "pipe", "ignore"],
  });
  const [root, other] = printed.split("\n");
  expect(other).toBe(root);
});
