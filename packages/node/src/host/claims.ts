/**
 * Records which owners of slots are running: each has a file under /run that names the owner and counts while its
 * process lives. The files are outside every data directory, so deleting that of a running service frees none of its
 * slots.
 */
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { identify, isAlive, type ProcessIdentity } from "@vivarium/kit/process-identity";

const CLAIMS_DIR = "/run/vivarium/claims";
const POLL_MS = 100;

/** Claims this owner's slots, until the returned function is called or this process ends. */
export async function claimSlots(owner: string, dir = CLAIMS_DIR): Promise<() => Promise<void>> {
  const self = identify(process.pid);
  if (!self) throw new Error("cannot read /proc: it must be mounted");
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const file = path.join(dir, `${self.pid}-${self.startTicks}`);
  await writeFile(`${file}.new`, owner, { mode: 0o600 });
  await rename(`${file}.new`, file);
  return () => rm(file, { force: true });
}

/** Returns the owners whose process lives, and removes the claims of dead processes. */
export async function claimedOwners(dir = CLAIMS_DIR): Promise<Set<string>> {
  return new Set((await readClaims(dir)).map(({ owner }) => owner));
}

/**
 * Waits for an older node over the same data directory to end, for example one whose supervisor was killed. Two
 * running nodes would each discard the other's machines.
 */
export async function waitForOlderClaims(owner: string, limitMs: number, dir = CLAIMS_DIR): Promise<void> {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const older = (await readClaims(dir)).find((claim) => claim.owner === owner && isOlder(claim.process));
    if (!older) return;
    if (Date.now() > deadline)
      throw new Error(
        `another node (pid ${older.process.pid}) runs over ${owner}, also if that was deleted meanwhile: stop it first`,
      );
    await sleep(POLL_MS);
  }
}

function isOlder({ pid, startTicks }: ProcessIdentity): boolean {
  if (pid === process.pid) return false;
  const own = identify(process.pid)?.startTicks ?? "";
  return Number(startTicks) < Number(own) || (startTicks === own && pid < process.pid);
}

async function readClaims(dir: string): Promise<{ owner: string; process: ProcessIdentity }[]> {
  const claims = [];
  for (const name of await readdir(dir).catch(() => [])) {
    const [, pid, startTicks] = /^(\d+)-(\d+)$/.exec(name) ?? [];
    if (pid === undefined || startTicks === undefined) continue;
    const file = path.join(dir, name);
    const claimant = { pid: Number(pid), startTicks };
    if (isAlive(claimant))
      claims.push({ owner: await readFile(file, "utf8").catch(() => ""), process: claimant });
    else await rm(file, { force: true });
  }
  return claims;
}
