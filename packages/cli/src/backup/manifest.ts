/** The manifest of a backup: what made it, of what, and the sum of every file in it. */
import { CliError } from "../cli-error.ts";
import type { Build } from "../supervisor/build.ts";

/** 2: with volumes and artifacts. Backups of 1 have neither, and are read as well. */
const FORMAT = 2;
export const MANIFEST_FILE = "manifest.json";
export const ROWS_FILE = "database.jsonl";
export const KEYS_DIR = "control";
export const STATES_DIR = "s";
export const QEMU_DIR = "qemu-root";
export const VOLUMES_DIR = "v";
export const OBJECTS_DIR = "objects";

/** `data_sha256` leaves out what is zero; see sums.ts. */
export type FileSum =
  | { bytes: number; sha256: string }
  | { bytes: number; data_sha256: string }
  | { link: string };

export interface BackupManifest {
  format: number;
  /** RFC 3339. */
  made_at: string;
  /** Version of the viv that made it. */
  made_by: string;
  /** Number of the database's schema. */
  schema: number;
  node_id: string;
  /** Whether saved state was asked for. */
  saved_state: boolean;
  /** Saved states in the backup. */
  snapshots: string[];
  /** Volumes in the backup. */
  volumes: string[];
  /** Artifacts whose files are in the backup. */
  artifacts: string[];
  /** Spaces of the warm tier, whose archives are in the backup. */
  archives: string[];
  /** Saved states, volumes, artifacts and spaces that were asked for and rows refer to, and that were not there. */
  missing: string[];
  files: Record<string, FileSum>;
}

export function newManifest(facts: Omit<BackupManifest, "format">): BackupManifest {
  return { format: FORMAT, ...facts };
}

/** Throws if the text is no manifest, or one that this build cannot restore. */
export function readManifest(text: string, build: Build): BackupManifest {
  const manifest = parse(text);
  if (manifest.format < 1 || manifest.format > FORMAT) {
    throw new CliError(
      `the backup has format ${manifest.format}, and this viv (${build.version}) reads formats up to ${FORMAT}`,
      { hint: `Restore it with the version that made it, ${manifest.made_by}, or a later one.` },
    );
  }
  if (manifest.schema > build.schema) {
    throw new CliError(
      `the backup was made by ${manifest.made_by} with schema ${manifest.schema}; this viv (${build.version}) knows schemas up to ${build.schema}`,
      { hint: `Restore it with ${manifest.made_by} or a later version.` },
    );
  }
  return manifest;
}

function parse(text: string): BackupManifest {
  try {
    const found = JSON.parse(text) as Partial<BackupManifest>;
    const value = { volumes: [], artifacts: [], archives: [], ...found } as BackupManifest;
    const isWhole =
      typeof value.format === "number" &&
      typeof value.schema === "number" &&
      [value.snapshots, value.volumes, value.artifacts, value.archives].every(Array.isArray) &&
      typeof value.files === "object" &&
      value.files !== null &&
      Object.values(value.files).every((sum) => typeof sum === "object" && sum !== null);
    if (isWhole) return value;
  } catch {}
  throw new CliError("the file is no backup of viv: its manifest cannot be read", {
    hint: "A backup begins with its manifest: tar --zstd -tf FILE shows it first.",
  });
}

/** The files of which a tree differs from a manifest, each with what is wrong. */
export function differences(expected: BackupManifest["files"], found: BackupManifest["files"]): string[] {
  const names = new Set([...Object.keys(expected), ...Object.keys(found)]);
  return [...names].sort().flatMap((name) => {
    const [wanted, present] = [expected[name], found[name]];
    if (!present) return [`${name} is missing`];
    if (!wanted) return [`${name} is not in the manifest`];
    return JSON.stringify(wanted) === JSON.stringify(present) ? [] : [`${name} is damaged`];
  });
}
