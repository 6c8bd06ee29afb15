/** The record of a template version, `template.json`: from the disk and from files that the build kept beside it. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readOrigin } from "../packages/node/src/snapshots/find-baselines.ts";

const run = promisify(execFile);
const VERSION = "2027.03.01-0123abcd";
const PACKAGES = "Package: bash\nStatus: install ok installed\nVersion: 5.2\n\n";
const BUILT = { content_hash: `sha256:${"1f".repeat(32)}`, built_at: "2027-03-01T09:30:00.000Z" };
const MADE = { cadence: "on-demand", category: "base" };

/** As in set-up: the tools of file systems may be missing in PATH. */
const ENV = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "template-origin-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** A base as the build leaves it, and its version with a disk that contains these files. */
async function buildBase(
  name: string,
  files: Record<string, string>,
): Promise<{ base: string; target: string }> {
  const [base, root] = [join(folder, name), join(folder, `${name}-root`)];
  const target = join(folder, "images", name, VERSION);
  for (const dir of [base, root, target]) await mkdir(dir, { recursive: true });
  for (const [file, text] of Object.entries(files)) {
    await mkdir(join(root, file, ".."), { recursive: true });
    await writeFile(join(root, file), text);
  }
  const disk = join(target, "root.ext4");
  await writeFile(disk, "");
  await truncate(disk, 4 << 20);
  await run("mkfs.ext4", ["-q", "-d", root, disk], { env: ENV });
  await writeFile(join(base, "content_hash"), `${"1f".repeat(32)}\n`);
  await writeFile(join(base, "built_at"), "2027-03-01T09:30:00Z\n");
  return { base, target };
}

async function describeBase({ base, target }: { base: string; target: string }): Promise<void> {
  const script = 'set -euo pipefail; . scripts/setup/images.sh; describe_template base "$1" "$2"';
  const env = { ...ENV, DATA_DIR: folder, CACHE_DIR: folder };
  await run("bash", ["-c", script, "bash", base, target], { cwd: join(import.meta.dirname, ".."), env });
}

test("a base names the release and the packages it was built from, and the node reports the same", async () => {
  const files = {
    "usr/lib/os-release": 'PRETTY_NAME="Debian"\nVERSION_CODENAME=trixie\nID=debian\n',
    "var/lib/dpkg/status": PACKAGES,
  };
  const made = await buildBase("whole", files);
  await describeBase(made);
  expect(JSON.parse(await readFile(join(made.target, "template.json"), "utf8"))).toMatchObject({
    name: "base",
    version: VERSION,
  });
  expect(await readOrigin(made.target)).toEqual({
    ...BUILT,
    ...MADE,
    base_image_ref: "debian/trixie",
    base_image_digest: `sha256:${createHash("sha256").update(PACKAGES).digest("hex")}`,
  });
});

test("facts that the disk does not contain are left out", async () => {
  const made = await buildBase("bare", { "etc/hostname": "sandbox\n" });
  await describeBase(made);
  expect(await readOrigin(made.target)).toEqual({ ...BUILT, ...MADE });
});

test("a description of an older set-up is completed where its disk is known", async () => {
  const made = await buildBase("older", { "var/lib/dpkg/status": PACKAGES });
  await writeFile(
    join(made.target, "template.json"),
    JSON.stringify({ name: "base", version: VERSION, ...BUILT }),
  );
  expect(await readOrigin(made.target)).toEqual(BUILT);
  await describeBase(made);
  expect(await readOrigin(made.target)).toMatchObject({
    ...BUILT,
    ...MADE,
    base_image_digest: expect.any(String),
  });
});
