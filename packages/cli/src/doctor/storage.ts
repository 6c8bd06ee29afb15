/** Checks of the storage: reflinks, free disk space, images and baselines. */
import { constants, existsSync, readdirSync, readFileSync } from "node:fs";
import { copyFile, mkdtemp, rm, statfs, writeFile } from "node:fs/promises";
import path from "node:path";
import { tryOpen } from "@vivarium/kit/try-open";
import { lackOfData, markOf } from "../supervisor/data-in-use.ts";
import { AS_ROOT, type Finding, fail, ok, warn } from "./finding.ts";

/** Error codes that mean a lack of permissions of this user, not of the host. */
const NOT_ALLOWED = new Set(["EACCES", "EPERM"]);
const GIB = 1024 ** 3;
/** Free bytes below which `viv doctor` warns: enough for base template, baseline and a few sessions. */
const LEAST_FREE_BYTES = 10 * GIB;
/** The same for the database and the logs. */
const LEAST_FREE_FOR_DATA_BYTES = 2 * GIB;

export async function checkReflink(dataDir: string): Promise<Finding> {
  const dir = nearestExisting(path.join(dataDir, "pool"));
  const cost = "snapshots and session disks are copied in full: slower starts, more disk";
  const remedy = "./setup makes a pool with reflinks inside the data directory (XFS in a sparse file).";
  try {
    const probe = await mkdtemp(path.join(dir, ".viv-doctor-"));
    try {
      await writeFile(path.join(probe, "a"), Buffer.alloc(64 * 1024, 1));
      await copyFile(path.join(probe, "a"), path.join(probe, "b"), constants.COPYFILE_FICLONE_FORCE);
      return ok("reflink", `works in ${dir}`);
    } finally {
      await rm(probe, { recursive: true, force: true });
    }
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    if (NOT_ALLOWED.has(code)) {
      const unknown = "unknown whether files are cloned or copied";
      return warn("reflink", `not tried: cannot write in ${dir} (${code})`, unknown, AS_ROOT);
    }
    return warn("reflink", `not in ${dir}${code && ` (${code})`}`, cost, remedy);
  }
}

export async function checkDisk(dataDir: string): Promise<Finding> {
  const dir = nearestExisting(path.join(dataDir, "pool"));
  const { bavail, bsize, blocks } = await statfs(dir);
  const free = bavail * bsize;
  const found = `${toGib(free)} of ${toGib(blocks * bsize)} GiB free in ${dir}`;
  if (free >= LEAST_FREE_BYTES) return ok("disk", found);
  const cost = "creating sessions is refused when it runs short (node_disk_pressure)";
  return warn("disk", found, cost, "Free some, or put --data-dir on a larger disk.");
}

/** A start would fill the directory below a disk that is not mounted, so it is refused. */
export async function checkDataInUse(dataDir: string): Promise<Finding> {
  const lack = await lackOfData(dataDir);
  if (lack) return fail("data", lack.found, "the service does not start", lack.remedy);
  const isApart = (await markOf(dataDir)) !== undefined;
  return ok("data", isApart ? `${dataDir}, with a disk of its own` : dataDir);
}

/** The database and the logs lie beside the pool, and so does the pool itself where it is a sparse image in a file. */
export async function checkDataDisk(
  dataDir: string,
  leastBytes = LEAST_FREE_FOR_DATA_BYTES,
): Promise<Finding> {
  const dirs = [dataDir, path.join(dataDir, "postgres"), path.join(dataDir, "log")].map(nearestExisting);
  const measured = await Promise.all(
    dirs.map(async (dir) => {
      const { bavail, bsize } = await statfs(dir);
      return { dir, free: bavail * bsize };
    }),
  );
  const fullest = measured.reduce((least, one) => (one.free < least.free ? one : least));
  const found = `${toGib(fullest.free)} GiB free in ${fullest.dir}`;
  if (fullest.free >= leastBytes) return ok("data disk", found);
  const cost = "when it is full the database stops, every request is answered 503, and log lines are lost";
  return warn("data disk", found, cost, "Free some, or put --data-dir on a larger disk.");
}

export function checkImages(imagesDir: string): Finding {
  const needed = ["kernel/vmlinuz", "kernel/initramfs.cpio.gz", "templates/base/current/root.ext4"];
  const missing = needed.filter((file) => !existsSync(path.join(imagesDir, file)));
  if (missing.length === 0) return ok("images", `kernel and base template in ${imagesDir}`);
  return fail("images", `${imagesDir} lacks ${missing.join(", ")}`, "no machine can start", "Run ./setup.");
}

/** A builder is a machine that unpacks one container image. */
export function checkBuilder(imagesDir: string): Finding {
  const file = "kernel/initramfs-builder.cpio.gz";
  if (existsSync(path.join(imagesDir, file)))
    return ok("builder", "templates can be made of container images");
  const cost = "no template can be made of a container image: viv template import is refused";
  return warn("builder", `${imagesDir} lacks ${file}`, cost, "Run ./setup, which makes it in a minute.");
}

/**
 * A baseline is a captured, booted machine of one template and size; a session starts by loading it. One that was baked
 * while KVM did not work stays emulated, although KVM may work by now.
 */
export function checkBaselines(
  imagesDir: string,
  { accelerator = "", hasKvm = () => tryOpen("/dev/kvm") === undefined } = {},
): Finding {
  const templates = path.join(imagesDir, "templates");
  const found = listDirs(templates).flatMap((template) =>
    listDirs(path.join(templates, template, "current")).flatMap((size) => {
      const dir = path.join(templates, template, "current", size);
      const made = readManifest(dir);
      return made
        ? [{ dir, isEmulated: made.accelerator === "tcg", text: `${template}/${size} (${howMade(made)})` }]
        : [];
    }),
  );
  if (found.length === 0)
    return fail("baselines", "none", "no session can start: there is nothing to load", "Run ./setup.");
  const text = found.map((one) => one.text).join(", ");
  const emulated = found.filter(({ isEmulated }) => isEmulated);
  if (emulated.length === 0 || accelerator === "tcg" || !hasKvm()) return ok("baselines", text);
  const dirs = emulated.map(({ dir }) => dir).join(" ");
  const remedy = `If KVM works by now: rm -r ${dirs}, then ./setup, which bakes with KVM.`;
  return warn("baselines", text, "new sessions are emulated, although this host has KVM", remedy);
}

interface MadeWith {
  accelerator?: string;
  cpu?: { model?: string };
}

const howMade = ({ accelerator, cpu }: MadeWith) =>
  [accelerator === "kvm" ? "KVM" : "emulated", cpu?.model && `CPU model ${cpu.model}`]
    .filter(Boolean)
    .join(", ");

function readManifest(dir: string): MadeWith | undefined {
  try {
    return JSON.parse(readFileSync(path.join(dir, "manifest.json"), "utf8")) as MadeWith;
  } catch {
    return undefined;
  }
}

function listDirs(dir: string): string[] {
  if (!existsSync(dir)) return [];
  return readdirSync(dir, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name);
}

function nearestExisting(dir: string): string {
  return existsSync(dir) ? dir : nearestExisting(path.dirname(dir));
}

const toGib = (bytes: number) => (bytes / GIB).toFixed(1);
