import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import { CliError } from "../cli-error.ts";
import type { Layout } from "./layout.ts";
import { MOUNT_POOL } from "./repository.ts";

/** Mounts the storage pool, whose files share blocks when copied, and creates it at the first start. */
export async function mountPool(layout: Layout): Promise<void> {
  if (!existsSync(MOUNT_POOL)) {
    await mkdir(path.join(layout.dataDir, "pool"), { recursive: true });
    return;
  }
  const { code, stderr, stdout } = await runHostCommand(MOUNT_POOL, [layout.dataDir], { timeoutMs: 120_000 });
  if (code === 0) return;
  throw new CliError(`the storage pool is not usable: ${(stderr || stdout).trim() || `exit code ${code}`}`);
}
