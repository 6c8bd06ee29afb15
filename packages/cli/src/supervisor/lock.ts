/**
 * Lock with which one supervisor owns a data directory: a file that names its holder. The file appears complete, as a
 * hard link to a finished draft. The lock of a dead holder is free.
 */
import { link, readFile, rename, rm, writeFile } from "node:fs/promises";
import { randomId } from "@vivarium/kit/id";
import { identify, isAlive, type ProcessIdentity } from "@vivarium/kit/process-identity";
import { hasCode } from "@vivarium/kit/unknown-error";

export interface Holder extends ProcessIdentity {
  url: string;
}

/** Takes the lock for this process, or returns the living holder that has it. */
export async function takeLock(
  file: string,
  url: string,
): Promise<{ release: () => Promise<void> } | { holder: Holder }> {
  const self = identify(process.pid);
  if (!self) throw new Error("cannot read /proc: it must be mounted");
  const mine = JSON.stringify({ ...self, startTicks: Number(self.startTicks), url });
  for (;;) {
    if (await publish(file, mine)) return { release: () => releaseLock(file, mine) };
    const found = await readFile(file, "utf8").catch(() => undefined);
    if (found === undefined) continue;
    const holder = parseHolder(found);
    if (holder && isAlive(holder)) return { holder };
    await discard(file, found);
  }
}

/** The living supervisor of this data directory, if there is one. */
export async function findHolder(file: string): Promise<Holder | undefined> {
  const holder = parseHolder(await readFile(file, "utf8").catch(() => ""));
  return holder && isAlive(holder) ? holder : undefined;
}

async function publish(file: string, content: string): Promise<boolean> {
  const draft = `${file}.${randomId(8)}`;
  await writeFile(draft, content, { mode: 0o644 });
  try {
    await link(draft, file);
    return true;
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
}

/** Removes a dead holder's file; puts back the file of a rival that has taken the lock just before. */
async function discard(file: string, expected: string): Promise<void> {
  const aside = `${file}.${randomId(8)}`;
  try {
    await rename(file, aside);
  } catch {
    return;
  }
  if ((await readFile(aside, "utf8")) !== expected) await link(aside, file).catch(() => {});
  await rm(aside, { force: true });
}

async function releaseLock(file: string, mine: string): Promise<void> {
  if ((await readFile(file, "utf8").catch(() => "")) === mine) await rm(file, { force: true });
}

function parseHolder(text: string): Holder | undefined {
  try {
    const value = JSON.parse(text) as Holder;
    const isWhole =
      Number.isInteger(value.pid) && value.startTicks !== undefined && value.bootId !== undefined;
    // In the file the ticks are a number.
    return isWhole ? { ...value, startTicks: String(value.startTicks) } : undefined;
  } catch {
    return undefined;
  }
}
