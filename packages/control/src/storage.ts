/**
 * Program of `viv storage`: what the database's rows say is stored, and whether the objects are whole. The service may run
 * meanwhile. It has the settings of the service in its environment, and writes lines of JSON:
 *
 *   storage.ts list
 *     {"things": [Stored, …], "unnamed_bytes": bytes}
 *   storage.ts check --rate BYTES
 *     {"expect": bytes}                                       first
 *     {"read": bytes}                                         so far, now and then
 *     {"checked": {"kind": "artifact", "id", "damages": [text]}}    for each artifact, and each archive
 */
import { parseArgs } from "node:util";
import { becomeAccount, requireAccount } from "@vivarium/kit/account";
import { createLog } from "@vivarium/kit/log";
import { Pace } from "@vivarium/kit/pace";
import { messageOf } from "@vivarium/kit/unknown-error";
import type { PlaceDeps } from "./archive-records/place.ts";
import { readBackArchives } from "./archives/read-back.ts";
import { countArchivedBytes } from "./archives/store.ts";
import { readBackArtifacts } from "./artifacts/read-back.ts";
import { readConfig } from "./config.ts";
import { type Database, openDatabase } from "./db/pool.ts";
import { openLocalObjects, openObjects } from "./open-objects.ts";
import { Keyring } from "./secrets/keyring.ts";
import { listThings } from "./storage/list.ts";
import { listStored } from "./storage/store.ts";

const PROGRESS_MS = 500;

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { rate: { type: "string", default: "0" } },
});

const write = (line: object) => void process.stdout.write(`${JSON.stringify(line)}\n`);

async function main(): Promise<void> {
  const config = readConfig();
  if (process.getuid?.() === 0 && config.user !== "")
    becomeAccount(await requireAccount(config.user, "VIV_CONTROL_USER"));
  const log = createLog("storage", "silent");
  const db = openDatabase({ url: config.databaseUrl, log, connections: 1 });
  const objects = await openObjects(config.objects);
  const localObjects = await openLocalObjects(objects, config.localObjectsDir);
  try {
    if (positionals[0] === "list") write(await listThings(db, new Set([objects, localObjects])));
    else if (positionals[0] !== "check") throw new Error(`expected list or check, got ${positionals[0]}`);
    else {
      const { keyring } = await Keyring.load(config.kekSource, false);
      await check({ db, objects, localObjects, keyring }, Number(values.rate) || Number.POSITIVE_INFINITY);
    }
  } finally {
    for (const store of new Set([objects, localObjects])) await store.close();
    await db.destroy();
  }
}

async function check(deps: PlaceDeps & { db: Database }, bytesPerSecond: number): Promise<void> {
  const things = await listStored(deps.db);
  const artifacts = things.filter(({ kind, state }) => kind === "artifact" && state !== "failed");
  const ofArtifacts = artifacts.reduce((sum, { size_bytes: bytes }) => sum + (bytes ?? 0), 0);
  write({ expect: ofArtifacts + (await countArchivedBytes(deps.db)) });
  const pace = new Pace(bytesPerSecond);
  const progress = setInterval(() => write({ read: pace.bytes }), PROGRESS_MS);
  try {
    for await (const { id, damages } of readBackArtifacts(deps, (bytes) => pace.take(bytes)))
      write({ checked: { kind: "artifact", id, damages } });
    for await (const { id, damages } of readBackArchives(deps, (bytes) => pace.take(bytes)))
      write({ checked: { kind: "archive", id, damages } });
  } finally {
    clearInterval(progress);
    write({ read: pace.bytes });
  }
}

main().catch((error: unknown) => {
  process.stderr.write(`${messageOf(error)}\n`);
  process.exitCode = 1;
});
