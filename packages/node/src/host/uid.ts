/** Ends every process under a slot's uid, which no other machine shares, in case that QEMU's pid was lost. */
import { readdir, readFile } from "node:fs/promises";
import { identify, killAndWait } from "@vivarium/kit/process-identity";

export async function killUid(uid: number): Promise<void> {
  const isOfUid = new RegExp(`^Uid:\\s+${uid}\\s`, "m");
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
    const identity = isOfUid.test(status) ? identify(Number(pid)) : undefined;
    if (identity) await killAndWait(identity);
  }
}
