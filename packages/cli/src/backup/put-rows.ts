/**
 * Puts rows that were saved before a schema changed back into the database of a service that does not run, to go back to
 * the version of before. The tables that are there are kept under another schema.
 */
import type { CliConfig } from "../config.ts";
import { layoutOf, makeBaseDirs } from "../supervisor/layout.ts";
import { takeUnserved } from "../supervisor/lock.ts";
import { requireNoUnfinishedRestore } from "../supervisor/unfinished-restore.ts";
import { databasePlace, startDatabase } from "./database.ts";
import { moveHeadsAside } from "./kept-heads.ts";
import { loadRows, UncertainLoad } from "./rows.ts";

export interface PutRows {
  rows: number;
  /** Name of the schema that the tables of before have now. */
  aside?: string;
  /** File with the heads of the audit log that were kept before. */
  heads?: string;
}

/** Undefined, and nothing changed, with `unlessSchemaIs` of the database's schema. */
export async function putRows(
  config: CliConfig,
  file: string,
  { keepAside, unlessSchemaIs }: { keepAside: "restore" | "update"; unlessSchemaIs?: number },
): Promise<PutRows | undefined> {
  const command = keepAside === "update" ? "viv install" : "viv restore-backup";
  return await withDatabase(config, command, async (url) => {
    const heads = await moveHeadsAside(layoutOf(config.dataDir));
    const put = await loadRows(url, file, { keepAside, unlessSchemaIs }).catch(async (error: unknown) => {
      if (!(error instanceof UncertainLoad)) await heads?.putBack();
      throw error;
    });
    if (put) return { ...put, ...(heads && { heads: heads.file }) };
    await heads?.putBack();
    return undefined;
  });
}

/** Continues a sentence. */
export function wordsOnHeads({ heads }: PutRows): string {
  return heads === undefined ? "" : `; the audit log's heads of before are in ${heads}`;
}

async function withDatabase<T>(
  config: CliConfig,
  command: string,
  work: (url: string) => Promise<T>,
): Promise<T> {
  const layout = layoutOf(config.dataDir, config.imagesDir);
  await makeBaseDirs(layout);
  const lock = await takeUnserved(layout, command);
  try {
    await requireNoUnfinishedRestore(layout);
    const place = databasePlace(config);
    if (place.url !== undefined) return await work(place.url);
    const database = await startDatabase(layout, place);
    return await work(database.url).finally(() => database.stop());
  } finally {
    await lock.release();
  }
}
