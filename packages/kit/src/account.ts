/** Users of this host, as /etc/passwd lists them. */
import { readFile } from "node:fs/promises";

export interface Account {
  name: string;
  uid: number;
  gid: number;
}

/** `initgroups` is missing in the type declarations of Node. */
type WithInitgroups = NodeJS.Process & { initgroups(user: string, extraGroup: number): void };

export async function findAccount(name: string): Promise<Account | undefined> {
  const lines = (await readFile("/etc/passwd", "utf8")).split("\n");
  const fields = lines.map((line) => line.split(":")).find(([user]) => user === name);
  return fields && { name, uid: Number(fields[2]), gid: Number(fields[3]) };
}

/** As `findAccount`, but throws an error that names the setting in which another user can be chosen. */
export async function requireAccount(name: string, setting: string): Promise<Account> {
  const account = await findAccount(name);
  if (account) return account;
  throw new Error(`there is no system user "${name}": make it (useradd --system ${name}) or set ${setting}`);
}

/** Drops root's rights for good: the process gets this user's uid, gid and groups, and no others. */
export function becomeAccount({ name, uid, gid }: Account): void {
  (process as WithInitgroups).initgroups(name, gid);
  process.setgid?.(gid);
  process.setuid?.(uid);
}
