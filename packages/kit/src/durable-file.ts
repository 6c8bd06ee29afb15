/** Files that are whole or absent, whenever the power goes. */
import { open, rename } from "node:fs/promises";
import path from "node:path";

export async function syncPath(target: string): Promise<void> {
  const handle = await open(target, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
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
