/** Finds what users of the service own in a data directory, and makes it root's before these users are removed. */
import { existsSync, realpathSync } from "node:fs";
import { readdir } from "node:fs/promises";
import path from "node:path";
import type { Account } from "@vivarium/kit/account";
import { runHostCommand } from "@vivarium/kit/host-command";

/** Names in a data directory below which they own files. */
const OWNED = /^(control|postgres|control\.before-restore-\d+)$/;
const LIMIT_MS = 600_000;
const TO_ROOT = ["-exec", "chown", "-h", "0:0", "{}", "+"];

type Users = readonly (Account | undefined)[];

/** The names in the data directory below which there is a file or directory of these users, or of their groups. */
export async function ownedBy(dataDir: string, users: Users): Promise<string[]> {
  const names = (await readdir(dataDir).catch(() => [])).filter((name) => OWNED.test(name));
  const found = await Promise.all(
    names.map(async (name) => (await find(path.join(dataDir, name), users, ["-print", "-quit"])) !== ""),
  );
  return names.filter((_, index) => found[index]);
}

/** Whether there is something of these users below a store of objects, which may be behind a link. */
export async function isOwnedStore(dir: string, users: Users): Promise<boolean> {
  return existsSync(dir) && (await find(realpathSync(dir), users, ["-print", "-quit"])) !== "";
}

export async function disownStore(dir: string, users: Users): Promise<void> {
  await find(realpathSync(dir), users, TO_ROOT);
}

/** Follows no link: the users could have made some. Modes stay, so what they alone could read root alone can. */
export async function disown(dataDir: string, users: Users): Promise<void> {
  for (const name of await ownedBy(dataDir, users)) await find(path.join(dataDir, name), users, TO_ROOT);
}

async function find(dir: string, users: Users, action: string[]): Promise<string> {
  const present = users.filter((user) => user !== undefined);
  if (present.length === 0) return "";
  const tests = present.flatMap(({ uid, gid }) => ["-o", "-uid", `${uid}`, "-o", "-gid", `${gid}`]);
  const condition = ["(", ...tests.slice(1), ")"];
  const { code, stdout, stderr } = await runHostCommand("find", [dir, "-xdev", ...condition, ...action], {
    timeoutMs: LIMIT_MS,
  });
  if (code !== 0) throw new Error(`find ${dir}: ${stderr.trim() || `exit code ${code}`}`);
  return stdout;
}
