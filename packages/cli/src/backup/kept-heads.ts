/**
 * Moves aside the heads of the audit log's chains that control keeps beside the keys (control/src/audit/kept-heads.ts).
 * Rows of before do not have them: with the file in place a verification reports `chain_shortened`, and no later head is kept.
 */
import { constants } from "node:fs";
import { open, rename } from "node:fs/promises";
import path from "node:path";
import { hasCode, messageOf } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import type { Layout } from "../supervisor/layout.ts";

const HEADS_FILE = "heads.json";

export interface MovedHeads {
  /** Where the file is now. */
  file: string;
  /** For rows that were not put back after all. */
  putBack(): Promise<void>;
}

/**
 * For a service that does not run. Call it before rows are loaded: a process that is killed between the two is repeated, and
 * then finds no heads in place. Undefined if there were none.
 */
export async function moveHeadsAside({
  controlDir,
}: Pick<Layout, "controlDir">): Promise<MovedHeads | undefined> {
  const dir = path.join(controlDir, "audit");
  const aside = `${HEADS_FILE}.before-restore-${new Date().toISOString().replaceAll(/\D/g, "").slice(0, 14)}`;
  try {
    await renameIn(dir, HEADS_FILE, aside);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw new CliError(`cannot move ${path.join(dir, HEADS_FILE)} aside: ${messageOf(error)}`, {
      hint: "No rows were changed. The file has heads of the audit log that the rows of before lack: move it away, and repeat.",
      cause: error,
    });
  }
  return { file: path.join(dir, aside), putBack: () => renameIn(dir, aside, HEADS_FILE) };
}

/** The directory is of control's user, which could have put a link in its place. */
async function renameIn(dir: string, from: string, to: string): Promise<void> {
  await using handle = await open(dir, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  const opened = `/proc/self/fd/${handle.fd}`;
  await rename(path.join(opened, from), path.join(opened, to));
  await handle.sync();
}
