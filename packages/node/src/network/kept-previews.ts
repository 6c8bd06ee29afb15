/**
 * The preview routes of this node on disk. A restarted node sends its gateway the same routes at once, so that
 * visitors keep their open connections. The file holds keys of cookies, so only root may read it.
 */
import { readFile } from "node:fs/promises";
import path from "node:path";
import { PreviewTable } from "@vivarium/contract/node";
import { writeDurably } from "@vivarium/kit/durable-file";
import type { Log } from "@vivarium/kit/log";

export const previewsFile = (dataDir: string) => path.join(dataDir, "previews.json");

/** Durable when this returns. One call at a time. */
export async function writePreviews(dataDir: string, table: PreviewTable): Promise<void> {
  await writeDurably(previewsFile(dataDir), JSON.stringify(table), 0o600);
}

/** Without a readable file there are no routes until control sends some. */
export async function readPreviews(
  { log }: { log: Log },
  dataDir: string,
): Promise<PreviewTable | undefined> {
  const file = previewsFile(dataDir);
  try {
    return PreviewTable.parse(JSON.parse(await readFile(file, "utf8")));
  } catch (err) {
    // No port was ever exposed.
    if ((err as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    log.warn({ err, file }, "no routes of previews could be read; there are none until control sends them");
    return undefined;
  }
}
