/** Makes a storage pool on a small file system of its own, which a test can fill, with the images in it. */
import { execFileSync, spawnSync } from "node:child_process";
import { realpathSync, statfsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { IMAGES, type Service, startService } from "./service.ts";

const MIB = 1024 * 1024;
/** Bytes that `leaveFree(0)` fills by writing, since fallocate cannot take a file system's last blocks. */
const LAST_BYTES = 16 * MIB;

export interface SmallPool {
  mount: string;
  freeBytes(): number;
  /** Fills the pool until so many bytes are free; a later call may also free some. */
  leaveFree(bytes: number): void;
  remove(): Promise<void>;
}

export async function makeSmallPool(bytes: number): Promise<SmallPool> {
  const dir = await mkdtemp(join(tmpdir(), "small-pool-"));
  await chmod(dir, 0o755);
  const [image, mount] = [join(dir, "image"), join(dir, "mount")];
  const filler = join(mount, "filler");
  let isMounted = false;
  const freeBytes = () => {
    const { bavail, bsize } = statfsSync(mount);
    return bavail * bsize;
  };
  const remove = async () => {
    if (isMounted) execFileSync("umount", [mount]);
    isMounted = false;
    await rm(dir, { recursive: true, force: true });
  };
  try {
    await mkdir(mount);
    execFileSync("truncate", ["-s", String(bytes), image]);
    execFileSync("mkfs.xfs", ["-q", "-m", "reflink=1", image]);
    execFileSync("mount", ["-t", "xfs", "-o", "loop,noatime,nosuid", image, mount]);
    isMounted = true;
    await copyImages(join(mount, "images"));
    return {
      mount,
      freeBytes,
      leaveFree: (wanted) => {
        // Truncating frees blocks at once, removing a file frees them later.
        for (const file of [filler, `${filler}-rest`]) execFileSync("truncate", ["-s", "0", file]);
        const excess = freeBytes() - wanted - (wanted === 0 ? LAST_BYTES : 0);
        if (excess > 0) execFileSync("fallocate", ["-l", String(excess), filler]);
        if (wanted === 0) writeUntilFull(`${filler}-rest`);
      },
      remove,
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

function writeUntilFull(file: string): void {
  const { stderr } = spawnSync("dd", ["if=/dev/zero", `of=${file}`, "bs=4k"], { encoding: "utf8" });
  if (!stderr.includes("No space left")) throw new Error(`the pool could not be filled: ${stderr}`);
}

/** Copies the images with timestamps and holes, since a baseline is identified by the age and blocks of its files. */
async function copyImages(to: string): Promise<void> {
  await mkdir(join(to, "templates/base"), { recursive: true });
  const version = realpathSync(join(IMAGES, "templates/base/current"));
  const copy = ["-a", "--sparse=always"];
  execFileSync("cp", [...copy, join(IMAGES, "kernel"), to]);
  execFileSync("cp", [...copy, version, join(to, "templates/base/current")]);
}

/** Starts a service in the pool; its database and logs are outside, where there is disk space. */
export async function startServiceIn(pool: SmallPool, floorBytes: number): Promise<Service> {
  const dataDir = join(pool.mount, "..", "data");
  await mkdir(dataDir);
  await symlink(pool.mount, join(dataDir, "pool"));
  const env = { VIV_DISK_FLOOR_BYTES: String(floorBytes) };
  return await startService({ env, dataDir, imagesDir: join(pool.mount, "images") });
}

export const mib = (count: number) => count * MIB;
