/** `./setup --baseline-only`, as at a boot, on a checkout whose programs that fetch, install or compile note their call. */
import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { beforeEach, expect, onTestFinished, test } from "vitest";

const ROOT = join(import.meta.dirname, "..");
const FORBIDDEN = ["apt-get", "npm", "curl", "wget", "git", "mmdebstrap", "cargo"];
const FIRST = "2026.01.02-00000000";
/** Makes a baseline as the real one does, as far as set-up looks. */
const BAKE = `
  while [ $# -gt 0 ]; do case $1 in --images-dir) images=$2 ;; --version) version=$2 ;; esac; shift; done
  mkdir -p "$images/templates/base/$version/small"
  echo '"accelerator": "kvm"' >"$images/templates/base/$version/small/manifest.json"
  echo "$version" >>baked`;

let folder: string;
let templates: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "viv boot-")));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  templates = join(folder, "data/pool/images/templates/base");
  copyFileSync(join(ROOT, "setup"), write("setup", ""));
  for (const name of ["scripts", "images", "guest", "packages", "package-lock.json"])
    symlinkSync(join(ROOT, name), join(folder, name));
  program("node_modules/.bin/node", BAKE);
  for (const name of FORBIDDEN) program(`bin/${name}`, `echo ${name} >>"${folder}/called"; exit 1`);
  program("bin/qemu-system-x86_64", "echo QEMU emulator version 10.0");
  program("bin/debugfs", "exit 0");
});

function write(name: string, text: string, mode = 0o755): string {
  const file = join(folder, name);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text, { mode });
  return file;
}
const program = (name: string, text: string) => write(name, `#!/bin/sh\n${text}\n`);

/** A pool as a set-up of another time, with another QEMU, has left it. Its cache is gone. */
function setUpEarlier(): void {
  write("data/pool/images/kernel/vmlinuz", "kernel");
  write("data/pool/images/kernel/initramfs.cpio.gz", "initramfs");
  const origin = `{"name":"base","version":"${FIRST}","content_hash":"sha256:abc","built_at":"2026-01-02T03:04:05Z"}\n`;
  write(`data/pool/images/templates/base/${FIRST}/template.json`, origin);
  write(`data/pool/images/templates/base/${FIRST}/root.ext4`, "the disk");
  for (const link of ["current", "next"]) symlinkSync(FIRST, join(templates, link));
}

/** In a network without any interface. */
function boot() {
  const args = ["--net", join(folder, "setup"), "--baseline-only", "--data-dir", join(folder, "data")];
  const { status, stdout, stderr } = spawnSync("unshare", args, {
    encoding: "utf8",
    env: {
      PATH: `${join(folder, "bin")}:${process.env.PATH}`,
      VIV_CACHE_DIR: join(folder, "cache"),
      VIV_CA_BUNDLE: "none",
    },
  });
  return { status, stdout, stderr };
}

test("a boot with another QEMU gets a baseline from the pool's own template, and fetches and installs nothing", () => {
  setUpEarlier();
  expect(boot()).toMatchObject({ status: 0, stderr: "", stdout: expect.stringContaining("Renewed after") });
  const version = readlinkSync(join(templates, "current"));
  expect(version).toMatch(/^2026\.01\.02-[0-9a-f]{8}$/);
  expect(version).not.toBe(FIRST);
  expect(readFileSync(join(templates, version, "root.ext4"), "utf8")).toBe("the disk");
  const origin = JSON.parse(readFileSync(join(templates, version, "template.json"), "utf8"));
  expect(origin).toMatchObject({ version, content_hash: "sha256:abc", built_at: "2026-01-02T03:04:05Z" });
  expect(existsSync(join(folder, "called"))).toBe(false);
  // The stamp is left to ./setup, which fetches what is missing.
  expect(existsSync(join(folder, "data/setup.stamp"))).toBe(false);
});

test("the next boot has nothing to do", () => {
  setUpEarlier();
  boot();
  const version = readlinkSync(join(templates, "current"));
  expect(boot().status).toBe(0);
  expect(readFileSync(join(folder, "baked"), "utf8")).toBe(`${version}\n`);
  expect(readdirSync(templates).toSorted()).toEqual([FIRST, version, "current", "next"].toSorted());
});

test("a boot without a template says what makes one, and makes nothing", () => {
  mkdirSync(join(folder, "data/pool/images/kernel"), { recursive: true });
  const { status, stderr } = boot();
  expect(status).toBe(1);
  expect(stderr).toContain(`run ./setup --data-dir ${folder}/data, which needs a network`);
  expect(readdirSync(join(folder, "data/pool/images"))).toEqual(["kernel"]);
  expect(existsSync(join(folder, "called"))).toBe(false);
});
