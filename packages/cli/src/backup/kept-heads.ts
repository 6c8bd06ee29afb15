/**
 * Moves aside the heads of the audit log's chains that control keeps beside the keys (control/src/audit/kept-heads.ts).
 * Rows of before do not have them: with the file in place a verification reports `chain_shortened`, and no later head is kept.
 */
import { constants } from "node:fs";
import { lstat, open, rename } from "node:fs/promises";
import path from "node:path";
import { hasCode, messageOf } from "@vivarium/kit/unknown-error";
import type { Layout } from "../supervisor/layout.ts";

const HEADS_FILE = "heads.json";

/** Where the file is now, or why it is still where it was. */
export type MovedHeads = { aside: string } | { left: string; why: string };

/** For a service that does not run. `before` (ms): a file that was written later stays. Undefined if there was none to move. */
export async function moveHeadsAside(
  { controlDir }: Pick<Layout, "controlDir">,
  { before }: { before: number },
): Promise<MovedHeads | undefined> {
  const dir = path.join(controlDir, "audit");
  const aside = `${HEADS_FILE}.before-restore-${new Date().toISOString().replaceAll(/\D/g, "").slice(0, 14)}`;
  try {
    // The directory is of control's user, which could have put a link in its place.
    await using handle = await open(dir, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    const opened = `/proc/self/fd/${handle.fd}`;
    const { mtimeMs } = await lstat(path.join(opened, HEADS_FILE));
    if (mtimeMs >= before) return undefined;
    await rename(path.join(opened, HEADS_FILE), path.join(opened, aside));
    await handle.sync();
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    return { left: path.join(dir, HEADS_FILE), why: messageOf(error) };
  }
  return { aside: path.join(dir, aside) };
}
