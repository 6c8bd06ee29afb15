/** Makes control's own folder and drops root. */
import { constants } from "node:fs";
import { chown, mkdir, open, readdir } from "node:fs/promises";
import path from "node:path";
import { type Account, becomeAccount, requireAccount } from "@vivarium/kit/account";

/** When started as root, gives the folder, and that of the object store, to `user` and becomes that user for good: nothing later may need root. */
export async function enterControlDir(controlDir: string, user: string, objectsDir?: string): Promise<void> {
  await mkdir(controlDir, { recursive: true, mode: 0o700 });
  if (objectsDir !== undefined) await mkdir(objectsDir, { recursive: true, mode: 0o700 });
  if (process.getuid?.() !== 0 || user === "") return;
  const account = await requireAccount(user, "VIV_CONTROL_USER");
  await giveTo(controlDir, account);
  // Only the directory: what is in it was made by the user.
  if (objectsDir !== undefined) await chown(objectsDir, account.uid, account.gid);
  becomeAccount(account);
}

/** Gives the user the folder and the files in it, which an earlier start may have made as another user. */
async function giveTo(controlDir: string, account: Account): Promise<void> {
  await chown(controlDir, account.uid, account.gid);
  for (const name of await readdir(controlDir)) await giveFile(path.join(controlDir, name), account);
}

/**
 * Hazard: the user may have put links to other people's files into the folder. Symbolic links and files with more than
 * one link keep their owner.
 */
async function giveFile(file: string, { uid, gid }: Account): Promise<void> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const handle = await open(file, flags).catch(() => undefined);
  try {
    const stat = await handle?.stat();
    if (stat?.isFile() && stat.nlink === 1) await handle?.chown(uid, gid);
  } finally {
    await handle?.close();
  }
}
