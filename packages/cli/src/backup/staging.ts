/** A directory for the parts of one backup or restore, named after its process, so that one of a dead process is found. */
import { mkdir, readdir, rm } from "node:fs/promises";
import path from "node:path";
import { identify, isAlive } from "@vivarium/kit/process-identity";

const PREFIX = ".viv-backup-";

/** Makes it below `parent`, and removes those of dead processes. `part`: ends the name, where a process has two. */
export async function makeStaging(parent: string, part = ""): Promise<AsyncDisposable & { dir: string }> {
  const self = identify(process.pid);
  if (!self) throw new Error("cannot read /proc: it must be mounted");
  for (const name of await readdir(parent)) {
    const [, pid, startTicks = ""] = new RegExp(`^\\${PREFIX}(\\d+)-(\\d+)[a-z-]*$`).exec(name) ?? [];
    // After a boot the pair may be another process's. Then the directory stays until a later run.
    if (pid !== undefined && !isAlive({ pid: Number(pid), startTicks }))
      await rm(path.join(parent, name), { recursive: true, force: true });
  }
  const dir = path.join(parent, `${PREFIX}${self.pid}-${self.startTicks}${part}`);
  await rm(dir, { recursive: true, force: true });
  await mkdir(dir, { mode: 0o700 });
  return { dir, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) };
}
