/** How set-up reads its command line. It is stopped at its first step, by an unknown system. */
import { execFileSync, spawnSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
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

test("set-up lists everything that a host lacks at once", () => {
  // An overlay of its own, with no space, and no root: `id` answers for both.
  const script = `
    mount -t tmpfs -o size=1m,mode=777 none "$0" && cp "$1" "$0/os-release" && mkdir "$0/bin"
    printf '#!/bin/sh\\n[ "$1" = -u ] && echo 1000 || echo somebody\\n' >"$0/bin/id" && chmod +x "$0/bin/id"
    PATH=$0/bin:$PATH VIV_OS_RELEASE=$0/os-release VIV_CACHE_DIR=$0/cache exec "$2" --data-dir "$0/data"`;
  const own = join(folder, "own");
  mkdirSync(own);
  const { status, stderr } = spawnSync(
    "unshare",
    ["--mount", "bash", "-c", script, own, join(folder, "os-release"), SETUP],
    { cwd: folder, encoding: "utf8", env: { PATH: process.env.PATH } },
  );
  expect(status).toBe(1);
  expect(stderr.match(/^What is wrong: .*/gm)).toEqual([
    expect.stringContaining("this is [data"),
    expect.stringContaining("you are somebody"),
    expect.stringContaining("0 GiB are free"),
  ]);
  expect(stderr.match(/^Way out: .*/gm)).toHaveLength(3);
});

test("every package whose program is not there is missing, whatever functions set-up has", () => {
  const script = `
    set -euo pipefail
    CACHE_DIR=$0 DATA_DIR=$0 CA_BUNDLE=auto SCOPE=all
    for part in scripts/setup/*.sh; do . "$part"; done
    awk '$1 { print $2 }' <<<"$COMMANDS"
    echo ---
    PATH=$0
    needs_missing`;
  const { stdout, stderr } = spawnSync("bash", ["-c", script, folder], {
    cwd: join(import.meta.dirname, ".."),
    encoding: "utf8",
  });
  const [needed = "", missing = ""] = stdout.split("---\n");
  const names = needed.trim().split("\n");
  expect(names, stderr).toContain("mmdebstrap");
  expect(missing.split("\n").map((line) => line.split(" ", 1)[0])).toEqual(expect.arrayContaining(names));
});

test("packages that cannot be installed are listed, each with the price of going without it", () => {
  const script = `
    set -euo pipefail
    EXPLANATION=$0/explanation SETUP_LOG=$0/setup.log CACHE_DIR=$0
    . scripts/setup/steps.sh
    . scripts/setup/packages.sh
    progress() { :; }
    apt_get() { return 100; }
    needs_missing() { echo "nftables no machine gets a network"; echo "rust the guest agent cannot be built"; }
    rust_packages() { echo rustc cargo; }
    EXPLANATION=$0/explanation
    # As a step does: in a condition, a failure would not end the function.
    set +e
    (set -e; install_packages)
    cat "$EXPLANATION"`;
  const { stdout } = spawnSync("bash", ["-c", script, folder], {
    cwd: join(import.meta.dirname, ".."),
    encoding: "utf8",
  });
  expect(stdout).toContain("nftables: without it no machine gets a network\n");
  expect(stdout).toContain("rust: without it the guest agent cannot be built\n");
  expect(stdout).toContain("apt-get install nftables rustc cargo");
});

test("cargo builds a checkout anew after another one used the same target directory, and only then", () => {
  const root = join(folder, "checkout");
  const source = join(root, "guest/agent/src/main.rs");
  mkdirSync(dirname(source), { recursive: true });
  writeFileSync(source, "");
  const script = `CACHE_DIR=$0; . scripts/setup/packages.sh; take_cargo_target "$1"`;
  /** Whether the source counts as changed after this checkout has taken the target directory. */
  const isTouched = (checkout: string) => {
    utimesSync(source, 1, 1);
    const { status } = spawnSync("bash", ["-euc", script, folder, checkout], {
      cwd: join(import.meta.dirname, ".."),
    });
    expect(status).toBe(0);
    return statSync(source).mtimeMs > 1_000;
  };
  const other = join(folder, "other");
  mkdirSync(join(other, "guest"), { recursive: true });
  expect([root, root, other, root].map(isTouched)).toEqual([true, false, false, true]);
});

test.each([
  [["--data-dir"]],
  [["--data-dir="]],
  [["--ca-bundle"]],
  [["--ca-bundle="]],
  [["--templates", "none"]],
  [["--templates=data,none"]],
  [["--frob"]],
])("%j is wrong usage, after which nothing is done", (options) => {
  expect(setup(options)).toEqual({ status: 2, stdout: "", stderr: expect.stringContaining("--help") });
});

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

test("an install over a unit sets up the unit's data directory, and nothing where the unit has another one", () => {
  const ROOT = join(import.meta.dirname, "..");
  for (const name of ["scripts/setup", "node_modules/.bin"])
    mkdirSync(join(folder, name), { recursive: true });
  copyFileSync(join(ROOT, "viv"), join(folder, "viv"));
  const program = (name: string, text: string) =>
    writeFileSync(join(folder, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  program("node_modules/.bin/node", "exit 0");
  program("scripts/setup/when-needed", 'echo "[set up $1]" >&2');
  program(
    "scripts/unit-data-dir",
    '[ "$1" = strange ] && exit 1; [ "$1" = vivarium ] && echo "/srv/a b" || true',
  );
  const viv = (words: string[], env: Record<string, string> = {}) =>
    spawnSync(join(folder, "viv"), words, { encoding: "utf8", env: { PATH: process.env.PATH, ...env } })
      .stderr;
  expect(viv(["install"])).toBe("[set up /srv/a b]\n");
  expect(viv(["install", "--data-dir", "/srv/x/../a b/"])).toBe("[set up /srv/x/../a b/]\n");
  expect(viv(["install", "--data-dir", "/srv/other"])).toBe("");
  expect(viv(["install"], { VIV_DATA_DIR: "/srv/other" })).toBe("");
  expect(viv(["install", "--name=second"])).toBe("[set up /var/lib/vivarium]\n");
  expect(viv(["install", "--name", "second", "--data-dir=/srv/2"])).toBe("[set up /srv/2]\n");
  expect(viv(["install", "--name", "strange"])).toBe("");
  expect(viv(["up"])).toBe("[set up /var/lib/vivarium]\n");
});
