/** Makes control's own folder and drops root. */
import { constants, existsSync } from "node:fs";
import { chown, mkdir, open, readdir, stat } from "node:fs/promises";
import path from "node:path";
import { type Account, becomeAccount, requireAccount } from "@vivarium/kit/account";
import { runHostCommand } from "@vivarium/kit/host-command";

/** When started as root, gives the folder, and that of the object store, to `user` and becomes that user for good: nothing later may need root. */
export async function enterControlDir(controlDir: string, user: string, objectsDir?: string): Promise<void> {
  await mkdir(controlDir, { recursive: true, mode: 0o700 });
  if (objectsDir !== undefined) await mkdir(objectsDir, { recursive: true, mode: 0o700 });
  if (process.getuid?.() !== 0 || user === "") return;
  const account = await requireAccount(user, "VIV_CONTROL_USER");
  await giveTo(controlDir, account);
  if (objectsDir !== undefined) await giveStore(objectsDir, account);
  becomeAccount(account);
}

/** Folders of a store in a directory (packages/objects directory-store.ts). */
const IN_STORE = ["objects", "incoming", "uploads"];
const LIMIT_MS = 600_000;

/**
 * The files in the store are the user's already, unless an uninstall has made it root's or the user has another number now. The
 * directory is given last: as long as it is not the user's, that user can have put nothing into it.
 */
async function giveStore(dir: string, { uid, gid }: Account): Promise<void> {
  const owner = (await stat(dir)).uid;
  const folders = IN_STORE.map((name) => path.join(dir, name)).filter((folder) => existsSync(folder));
  // A directory of the operator's with other things in it is no store yet.
  if (owner !== uid && folders.length === IN_STORE.length) {
    const ofStore = ["-xdev", "-uid", `${owner}`, "(", "-type", "d", "-o", "-type", "f", "-links", "1", ")"];
    const give = ["-exec", "chown", "-h", `${uid}:${gid}`, "{}", "+"];
    const { code, stderr } = await runHostCommand("find", [...folders, ...ofStore, ...give], {
      timeoutMs: LIMIT_MS,
    });
    if (code !== 0)
      throw new Error(`cannot give ${dir} to its user: ${stderr.trim() || `exit code ${code}`}`);
  }
  await chown(dir, uid, gid);
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
