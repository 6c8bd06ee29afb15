import { constants } from "node:fs";
import { chown, mkdir, open, readdir, readFile } from "node:fs/promises";
import path from "node:path";

/** Missing in the type declarations of the runtime. */
type WithInitgroups = NodeJS.Process & { initgroups(user: string, extraGroup: number): void };

interface Account {
  uid: number;
  gid: number;
}

/**
 * Makes control's own folder and, when started as root, gives it to the given user and becomes that user for good.
 * Nothing that needs root may come after this.
 */
export async function enterControlDir(controlDir: string, user: string): Promise<void> {
  await mkdir(controlDir, { recursive: true, mode: 0o700 });
  if (process.getuid?.() !== 0 || user === "") return;
  const account = await findAccount(user);
  await giveTo(controlDir, account);
  (process as WithInitgroups).initgroups(user, account.gid);
  process.setgid?.(account.gid);
  process.setuid?.(account.uid);
}

/** The folder and what an earlier start, as another user, may have left in it. */
async function giveTo(controlDir: string, account: Account): Promise<void> {
  await chown(controlDir, account.uid, account.gid);
  for (const name of await readdir(controlDir)) await giveFile(path.join(controlDir, name), account);
}

/** The folder was that user's own, who may have put other people's files there by link: those stay whose they are. */
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

async function findAccount(user: string): Promise<Account> {
  const lines = (await readFile("/etc/passwd", "utf8")).split("\n");
  const fields = lines.map((line) => line.split(":")).find(([name]) => name === user);
  if (!fields) {
    throw new Error(
      `there is no system user "${user}": make it (useradd --system ${user}) or set VIV_CONTROL_USER`,
    );
  }
  return { uid: Number(fields[2]), gid: Number(fields[3]) };
}
