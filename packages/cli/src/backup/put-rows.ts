/**
 * Puts rows that were saved before a schema changed back into the database of a service that does not run, to go back to
 * the version of before. The tables that are there are kept under another schema.
 */
import type { CliConfig } from "../config.ts";
import { layoutOf, makeBaseDirs } from "../supervisor/layout.ts";
import { takeUnserved } from "../supervisor/lock.ts";
import { requireNoUnfinishedRestore } from "../supervisor/unfinished-restore.ts";
import { databasePlace, startDatabase } from "./database.ts";
import { type MovedHeads, moveHeadsAside } from "./kept-heads.ts";
import { loadRows, UncertainLoad } from "./rows.ts";

export interface PutRows {
  /** Absent: the database was left as it is. */
  rows?: number;
  /** Name of the schema that the tables of before have now; of a database that was left as it is, the newest such schema. */
  aside?: string;
  /** The heads of the audit log that were kept for the tables of before. */
  heads?: MovedHeads;
}

/** With `unlessSchemaIs` of the database's schema no row is changed. An earlier attempt may have died before it moved the heads. */
export async function putRows(
  config: CliConfig,
  file: string,
  { keepAside, unlessSchemaIs }: { keepAside: "restore" | "update"; unlessSchemaIs?: number },
  loadInto = loadRows,
): Promise<PutRows> {
  const command = keepAside === "update" ? "viv install" : "viv restore-backup";
  return await withDatabase(config, command, async (url) => {
    const load = () => loadInto(url, file, { keepAside, unlessSchemaIs });
    const loaded = await load().catch((error: unknown) => {
      // The same load again finds out which of both it was.
      if (error instanceof UncertainLoad && unlessSchemaIs !== undefined) return load();
      throw error;
    });
    const before = loaded.rows === undefined ? endOfSecond(loaded.aside) : Number.POSITIVE_INFINITY;
    const heads = await moveHeadsAside(layoutOf(config.dataDir), { before });
    return { ...loaded, ...(heads && { heads }) };
  });
}

/** The end of the second (ms) in the name of a schema that was kept: the service wrote no heads in it after the load. */
function endOfSecond(aside = ""): number {
  const time = aside.slice(-14).replace(/^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)$/, "$1-$2-$3T$4:$5:$6Z");
  return (Date.parse(time) || 0) + 1_000;
}

/** Continues a sentence. */
export function wordsOnHeads({ heads }: PutRows): string {
  if (!heads) return "";
  if ("aside" in heads) return `; the audit log's heads of before are in ${heads.aside}`;
  return `; ${heads.left} has heads of the audit log that these rows lack, and is not moved aside (${heads.why}): remove it before the service starts`;
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
