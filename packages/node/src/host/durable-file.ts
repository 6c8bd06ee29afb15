/** Files that are whole or not there, whenever the power goes. */
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

/** On disk under its name when this returns; until then whatever was there before. One writer at a time. */
export async function writeDurably(file: string, text: string, mode: number): Promise<void> {
  const partial = `${file}.tmp`;
  const handle = await open(partial, "w", mode);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(partial, file);
  await syncPath(path.dirname(file));
}
