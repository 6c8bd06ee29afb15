/**
 * Checks the names in a manifest before any is joined to a path. A backup may come from anywhere: no name in it may lead
 * out of the directory that it is unpacked into, or out of the places that its parts are moved to.
 */
import path from "node:path";
import { SnapshotId, VolumeId } from "@vivarium/contract/node";
import { CliError } from "../cli-error.ts";
import {
  type BackupManifest,
  KEYS_DIR,
  OBJECTS_DIR,
  QEMU_DIR,
  ROWS_FILE,
  STATES_DIR,
  VOLUMES_DIR,
} from "./manifest.ts";
import { isObjectPath } from "./objects.ts";
import { IMAGE_FILE } from "./volumes.ts";

/** As the node names the roots of its QEMU builds: the start of the binary's SHA-256. */
const BUILD_NAME = /^[0-9a-f]{16}$/;

export const isSnapshotId = (text: unknown): text is string => SnapshotId.safeParse(text).success;
export const isVolumeId = (text: unknown): text is string => VolumeId.safeParse(text).success;

type Names = Pick<BackupManifest, "snapshots" | "volumes" | "files">;

/** Throws if an id has not the form of one, or a file's name or link leads outside of its part of the backup. */
export function checkNames({ snapshots, volumes, files }: Names): void {
  for (const id of snapshots) if (!isSnapshotId(id)) throw refusal("the id of a saved state", id);
  for (const id of volumes) if (!isVolumeId(id)) throw refusal("the id of a volume", id);
  const ids = new Set([...snapshots, ...volumes]);
  for (const [name, sum] of Object.entries(files)) {
    const part = partOf(name, ids);
    if (part === undefined) throw refusal("the name of a file", name);
    if (!("link" in sum)) continue;
    if (!isInside(part, name, sum.link)) throw refusal(`the target of the link ${name}`, sum.link);
  }
}

/** The directory within which links of a file may lead, empty if it can be no link. Undefined for a name of nothing. */
function partOf(name: string, ids: ReadonlySet<string>): string | undefined {
  if (path.posix.normalize(name) !== name || name.includes("\0")) return undefined;
  if (name === ROWS_FILE) return "";
  const [top, second = "", ...rest] = name.split("/");
  if (second === "" || rest.at(-1) === "") return undefined;
  if (top === KEYS_DIR) return rest.length === 0 ? "" : undefined;
  if (rest.length === 0) return undefined;
  if (top === VOLUMES_DIR) return ids.has(second) && rest.join("/") === IMAGE_FILE ? "" : undefined;
  if (top === OBJECTS_DIR) return isObjectPath(name) ? "" : undefined;
  const isPart = (top === STATES_DIR && ids.has(second)) || (top === QEMU_DIR && BUILD_NAME.test(second));
  return isPart ? `${top}/${second}/` : undefined;
}

function isInside(part: string, name: string, target: unknown): boolean {
  if (part === "" || typeof target !== "string" || target === "" || path.isAbsolute(target)) return false;
  return path.posix.join(path.dirname(name), target).startsWith(part);
}

function refusal(what: string, found: unknown): CliError {
  return new CliError(`the backup is not restored: ${what} is ${JSON.stringify(found)}`, {
    hint: "viv backup writes no such name: the file was changed. Nothing was touched.",
  });
}
