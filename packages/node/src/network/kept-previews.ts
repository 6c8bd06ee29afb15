/**
 * The routes of this node's previews on disk: a node that starts again tells its gateway the same routes at once, so that
 * visitors with open connections stay. The file holds the keys of cookies: nobody but root reads it.
 */
import { readFile } from "node:fs/promises";
import path from "node:path";
import { PreviewTable } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import { writeDurably } from "../host/durable-file.ts";

export const previewsFile = (dataDir: string) => path.join(dataDir, "previews.json");

/** On disk when this returns. Not to be called again before. */
export async function writePreviews(dataDir: string, table: PreviewTable): Promise<void> {
  await writeDurably(previewsFile(dataDir), JSON.stringify(table), 0o600);
}

/** Without a file that can be read there are no routes until control sends some. */
export async function readPreviews(
  { log }: { log: Log },
  dataDir: string,
): Promise<PreviewTable | undefined> {
  const file = previewsFile(dataDir);
  try {
    return PreviewTable.parse(JSON.parse(await readFile(file, "utf8")));
  } catch (err) {
    // Nothing was ever exposed.
    if ((err as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    log.warn({ err, file }, "no routes of previews could be read; there are none until control sends them");
    return undefined;
  }
}
