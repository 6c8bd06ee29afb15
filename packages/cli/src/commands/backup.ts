/** `viv backup`: saves database, keys and, on request, saved state in one file, while the service runs. */
import { lstat, stat } from "node:fs/promises";
import path from "node:path";
import { backUp } from "../backup/back-up.ts";
import { CliError } from "../cli-error.ts";
import { EXIT } from "../exit-codes.ts";
import { withConfigInForce } from "../install/config-in-force.ts";
import { requireRootFor } from "../install/systemd.ts";
import { formatBytes } from "../print/bytes.ts";
import { withInterrupt } from "../service/interrupt.ts";
import { type Call, Verb } from "./verb.ts";

export function backupCommand(): Verb {
  return new Verb("backup", [
    "sudo viv backup /srv/backups/vivarium.tar.zst",
    "sudo viv backup --saved-state --force /srv/backups/vivarium.tar.zst",
    "sudo viv backup --no-volumes --no-artifacts /srv/backups/small.tar.zst",
  ])
    .summary("save database, keys, volumes, artifacts and saved state in a file")
    .description(
      `Save the database and the keys in one file, as of one instant, while the service runs, with the volumes and artifacts
that the rows of that instant refer to. With --saved-state also the paused sessions, checkpoints and templates. A volume
that a session uses meanwhile is saved as a power cut would leave it. The file holds keys: only its owner can read it.
Exits with 1 if something of it was not there, and names it.`,
    )
    .argument("<file>", "a tar, compressed with zstd")
    .option("--data-dir <dir>", "data directory of the service (default: $VIV_DATA_DIR or /var/lib/vivarium)")
    .option("--saved-state", "also what paused sessions, checkpoints and templates are made of")
    .option("--no-volumes", "without the content of volumes")
    .option("--no-artifacts", "without the files of artifacts")
    .option("--force", "replace a file of this name, once the new one is whole")
    .option("--json", "print {file, bytes, schema, snapshots, volumes, artifacts, archives, missing}")
    .does(backup);
}

type Options = { savedState?: boolean; volumes: boolean; artifacts: boolean; force?: boolean };

async function backup(call: Call<Options>, name: string): Promise<number> {
  requireRootFor("backup");
  const file = path.resolve(name);
  await checkTarget(file, call.options.force ?? false);
  const { savedState = false, volumes: withVolumes, artifacts: withArtifacts } = call.options;
  const context = await withConfigInForce(call);
  const manifest = await withInterrupt((signal) =>
    backUp(context, file, { savedState, volumes: withVolumes, artifacts: withArtifacts, signal }),
  );
  const { schema, snapshots, volumes, artifacts, archives, missing } = manifest;
  const { size: bytes } = await stat(file);
  call.print(
    { file, bytes, schema, snapshots, volumes, artifacts, archives, missing },
    () => `${file} (${formatBytes(bytes)})`,
    () => file,
  );
  if (missing.length === 0) return EXIT.ok;
  call.terminal.note(
    `viv: the backup is without these, which rows refer to and which were not there: ${missing.join(", ")}`,
  );
  return EXIT.failed;
}

/** Says at the start what would else fail once everything is saved. */
async function checkTarget(file: string, force: boolean): Promise<void> {
  const dir = path.dirname(file);
  const parent = await stat(dir).catch(() => undefined);
  if (!parent?.isDirectory()) throw new CliError(`there is no directory ${dir}`);
  const present = await lstat(file).catch(() => undefined);
  if (!present) return;
  if (present.isDirectory())
    throw new CliError(`${file} is a directory`, { hint: "Give the name of a file in it." });
  if (!force)
    throw new CliError(`${file} exists`, { hint: "Replace it with --force, or choose another name." });
  if (!present.isFile())
    throw new CliError(`${file} is no file, and is not replaced`, { hint: "Choose another name." });
}
