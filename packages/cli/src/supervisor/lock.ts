/**
 * Lock with which one supervisor, or one command that no service may run beside, owns a data directory: a file that names
 * its holder. The file appears complete, as a hard link to a finished draft. The lock of a dead holder is free.
 */
import { link, readFile, rename, rm, writeFile } from "node:fs/promises";
import { randomId } from "@vivarium/kit/id";
import { identify, isAlive, type ProcessIdentity } from "@vivarium/kit/process-identity";
import { hasCode } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";

export interface Holder extends ProcessIdentity {
  /** Address of the service. Of a command its name, which earlier versions print in this place. */
  url: string;
  /** The command that has the lock, as `viv backup`; absent for a service. */
  command?: string;
  /** Absent for a supervisor of an earlier version, which the signal to pause all sessions would end at once. */
  pauses?: boolean;
}

export interface Lock {
  release: () => Promise<void>;
}

/** Takes the lock for the service of this process, or returns the living holder that has it. */
export function takeLock(file: string, url: string): Promise<Lock | { holder: Holder }> {
  return takeAs(file, { url, pauses: true });
}

/** As `takeLock`, for a command that is no service. */
export function takeForCommand(file: string, command: string): Promise<Lock | { holder: Holder }> {
  return takeAs(file, { url: command, command });
}

async function takeAs(
  file: string,
  facts: Pick<Holder, "url" | "command" | "pauses">,
): Promise<Lock | { holder: Holder }> {
  const self = identify(process.pid);
  if (!self) throw new Error("cannot read /proc: it must be mounted");
  const mine = JSON.stringify({ ...self, startTicks: Number(self.startTicks), ...facts });
  for (;;) {
    if (await publish(file, mine)) return { release: () => releaseLock(file, mine) };
    const found = await readFile(file, "utf8").catch(() => undefined);
    if (found === undefined) continue;
    const holder = parseHolder(found);
    if (holder && isAlive(holder)) return { holder };
    await discard(file, found);
  }
}

/** Takes the lock for work that no service may run beside; `command` names it to who finds the lock taken. */
export async function takeUnserved(
  { lockFile, dataDir }: { lockFile: string; dataDir: string },
  command: string,
): Promise<Lock> {
  const lock = await takeForCommand(lockFile, command);
  if ("release" in lock) return lock;
  refuseCommand(lock.holder, dataDir);
  throw new CliError(`a service (pid ${lock.holder.pid}) serves ${dataDir} at ${lock.holder.url}`, {
    hint: "Stop it first: viv down, or systemctl stop of its unit. Machines of live sessions run on.",
  });
}

/** Throws if the lock's holder is a command: it serves nothing, and must not be ended halfway. */
export function refuseCommand({ command, pid }: Holder, dataDir: string): void {
  if (command === undefined) return;
  throw new CliError(`${command} (pid ${pid}) is at work on ${dataDir}, and no service runs there`, {
    hint: "Wait until it has ended, and try again.",
  });
}

/** The living holder of this data directory, a service or a command, if there is one. */
export async function findHolder(file: string): Promise<Holder | undefined> {
  const holder = parseHolder(await readFile(file, "utf8").catch(() => ""));
  return holder && isAlive(holder) ? holder : undefined;
}

/** The living supervisor of this data directory, if there is one. */
export async function findService(file: string): Promise<Holder | undefined> {
  const holder = await findHolder(file);
  return holder?.command === undefined ? holder : undefined;
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
    if (!isWhole) return undefined;
    // Earlier versions have the name of a command only in the place of the address.
    const command = value.command ?? (URL.canParse(value.url) ? undefined : value.url);
    // In the file the ticks are a number.
    return { ...value, startTicks: String(value.startTicks), ...(command !== undefined && { command }) };
  } catch {
    return undefined;
  }
}
