/** Files that are whole or absent, whenever the power goes. */
import { open, rename } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "./host-command.ts";

/** A disk that has much to write. */
const SYNC_LIMIT_MS = 3_600_000;

export async function syncPath(target: string): Promise<void> {
  const handle = await open(target, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Everything that any process has written to the file system of this path is on disk when this returns. */
export async function syncFileSystem(target: string): Promise<void> {
  const { code, stderr } = await runHostCommand("sync", ["--file-system", target], {
    timeoutMs: SYNC_LIMIT_MS,
  });
  if (code !== 0) throw new Error(`sync --file-system ${target}: ${stderr.trim() || `exit code ${code}`}`);
}

/**
 * Replaces a file. The new content is durable when this returns; until then the name has the old file. One writer at a
 * time. The mode holds whatever the umask is, also if an interrupted write left its partial file.
 */
export async function writeDurably(file: string, content: string | Uint8Array, mode: number): Promise<void> {
  const partial = `${file}.tmp`;
  const handle = await open(partial, "w", mode);
  try {
    await handle.chmod(mode);
    await handle.writeFile(content);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(partial, file);
  await syncPath(path.dirname(file));
}
