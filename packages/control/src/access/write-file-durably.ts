import { open, rename } from "node:fs/promises";
import path from "node:path";

/** Writes a file that only its owner can read. It is written whole or not at all, and survives a power cut. */
export async function writeFileDurably(file: string, content: Uint8Array | string): Promise<void> {
  const unfinished = `${file}.new`;
  const handle = await open(unfinished, "w", 0o600);
  try {
    await handle.chmod(0o600);
    await handle.writeFile(content);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(unfinished, file);
  const folder = await open(path.dirname(file), "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
