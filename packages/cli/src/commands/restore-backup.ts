/** `viv restore-backup`: puts a backup into a data directory whose service does not run. */
import path from "node:path";
import { putRows, wordsOnHeads } from "../backup/put-rows.ts";
import { restoreBackup } from "../backup/restore.ts";
import { takeBackUnfinished } from "../backup/restore-journal.ts";
import { CliError, UsageError } from "../cli-error.ts";
import { withConfigInForce } from "../install/config-in-force.ts";
import { requireRootFor } from "../install/systemd.ts";
import { withInterrupt } from "../service/interrupt.ts";
import { layoutOf, makeBaseDirs, SAVED_ROWS } from "../supervisor/layout.ts";
import { takeUnserved } from "../supervisor/lock.ts";
import { type Call, Verb } from "./verb.ts";

export function restoreBackupCommand(): Verb {
  return new Verb("restore-backup", [
    "sudo viv restore-backup /srv/backups/vivarium.tar.zst",
    "sudo viv restore-backup --data-dir /srv/other /srv/backups/vivarium.tar.zst",
    "sudo viv restore-backup --undo",
  ])
    .summary("put a backup in place")
    .description(
      `Put a backup of viv backup into a data directory. The service must be stopped. Every file is compared with its
sum before anything is touched. A directory with data is refused; with --force the data is moved aside and kept. A backup of
a later version is refused; one of an earlier version is brought up to date by the next start. A volume that is there
already stays as it is. A file control/rows-….jsonl
of the data directory, with the rows of before an update, is put back too, with --force. After a restore that was killed
the service does not start: repeat the restore, or take it back with --undo.`,
    )
    .argument("[file]", "made by viv backup, or rows of before an update")
    .option("--data-dir <dir>", "data directory of the service (default: $VIV_DATA_DIR or /var/lib/vivarium)")
    .option("--force", "move aside what the data directory has")
    .option("--undo", "put back what was there before a restore that was interrupted")
    .option(
      "--json",
      "print {made_at, made_by, schema, rows, snapshots, volumes, artifacts, archives, missing, unchanged, aside}",
    )
    .does(restore);
}

async function restore(call: Call<{ force?: boolean; undo?: boolean }>, name?: string): Promise<void> {
  requireRootFor("restore-backup");
  const { force = false, undo = false } = call.options;
  if (undo === (name !== undefined))
    throw new UsageError("give the file to restore, or --undo to take back a restore that was interrupted");
  if (name === undefined) return await takeBack(call);
  if (SAVED_ROWS.test(path.basename(name))) return await restoreRows(call, path.resolve(name), force);
  const context = await withConfigInForce(call);
  const { manifest, rows, unchanged, aside } = await withInterrupt((signal) =>
    restoreBackup(context, path.resolve(name), { force, signal }),
  );
  const { made_at, made_by, schema, snapshots, volumes, artifacts, archives, missing } = manifest;
  const counts = [
    `${rows} rows`,
    `${snapshots.length} saved states`,
    `${volumes.length - unchanged.length} volumes`,
    `${artifacts.length} artifacts`,
    ...(archives.length > 0 ? [`${archives.length} spaces of the warm tier`] : []),
  ];
  const lines = [
    `restored ${counts.join(", ")} as of ${made_at} into ${call.config.dataDir}`,
    ...(unchanged.length > 0 ? [`volumes that were there stay as they are: ${unchanged.join(", ")}`] : []),
    ...aside.map((place) => `kept what was there before: ${place}`),
    "start the service: viv up, or systemctl start of its unit",
  ];
  const contents = { snapshots, volumes, artifacts, archives, missing };
  const facts = { made_at, made_by, schema, rows, ...contents, unchanged, aside };
  call.print(facts, () => lines.join("\n"));
}

async function takeBack(call: Call): Promise<void> {
  const layout = layoutOf(call.config.dataDir);
  await makeBaseDirs(layout);
  const lock = await takeUnserved(layout, "viv restore-backup");
  const backup = await takeBackUnfinished(layout).finally(() => lock.release());
  call.print({ undone: backup }, () => `${layout.dataDir} is as it was before the restore of ${backup}`);
}

/** Rows alone, that a start saved before it changed the schema. */
async function restoreRows(call: Call, file: string, force: boolean): Promise<void> {
  if (!force)
    throw new CliError(`${file} has rows alone, which replace those of the database`, {
      hint: "With --force the tables that are there are kept under another schema.",
    });
  const { config } = await withConfigInForce(call);
  const put = await putRows(config, file, { keepAside: "restore" });
  const kept = put.aside === undefined ? "" : `; the tables of before are in the schema ${put.aside}`;
  if (put.heads && "left" in put.heads)
    throw new CliError(`put ${put.rows} rows back${kept}${wordsOnHeads(put)}`);
  call.print(put, () => `put ${put.rows} rows back${kept}${wordsOnHeads(put)}`);
}
