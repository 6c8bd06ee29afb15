/** Checks of the storage: reflinks, free disk space, images and baselines. */
import { constants, existsSync, readdirSync } from "node:fs";
import { copyFile, mkdtemp, rm, statfs, writeFile } from "node:fs/promises";
import path from "node:path";
import { AS_ROOT, type Finding, fail, ok, warn } from "./finding.ts";

/** Error codes that mean a lack of permissions of this user, not of the host. */
const NOT_ALLOWED = new Set(["EACCES", "EPERM"]);
const GIB = 1024 ** 3;
/** Free bytes below which `viv doctor` warns: enough for base template, baseline and a few sessions. */
const LEAST_FREE_BYTES = 10 * GIB;

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

export function checkImages(imagesDir: string): Finding {
  const needed = ["kernel/vmlinuz", "kernel/initramfs.cpio.gz", "templates/base/current/root.ext4"];
  const missing = needed.filter((file) => !existsSync(path.join(imagesDir, file)));
  if (missing.length === 0) return ok("images", `kernel and base template in ${imagesDir}`);
  return fail("images", `${imagesDir} lacks ${missing.join(", ")}`, "no machine can start", "Run ./setup.");
}

/** A baseline is a captured, booted machine of one template and size; a session starts by loading it. */
export function checkBaselines(imagesDir: string): Finding {
  const templates = path.join(imagesDir, "templates");
  const found = listDirs(templates).flatMap((template) =>
    listDirs(path.join(templates, template, "current"))
      .filter((size) => existsSync(path.join(templates, template, "current", size, "manifest.json")))
      .map((size) => `${template}/${size}`),
  );
  if (found.length > 0) return ok("baselines", found.join(", "));
  return fail("baselines", "none", "no session can start: there is nothing to load", "Run ./setup.");
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
