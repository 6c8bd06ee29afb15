/** Ends every process under a slot's uid, which no other machine shares. A safety net for a pid that was lost. */
import { readdir, readFile } from "node:fs/promises";
import { identify, killAndWait } from "@vivarium/kit/process-identity";

export async function killUid(uid: number): Promise<void> {
  for (const pid of await pidsOf(uid)) {
    const identity = identify(pid);
    if (identity) await killAndWait(identity);
  }
}

async function pidsOf(uid: number): Promise<number[]> {
  const pids: number[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const status = await readFile(`/proc/${name}/status`, "utf8").catch(() => "");
    if (new RegExp(`^Uid:\\s+${uid}\\s`, "m").test(status)) pids.push(Number(name));
  }
  return pids;
}
