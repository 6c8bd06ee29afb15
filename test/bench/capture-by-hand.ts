/** Floor F6: the cost of a capture without the service: stop, device state, clone, changed pages, continue. */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { cloneFile } from "../../packages/node/src/disks/clone.ts";
import { execInGuest } from "../../packages/node/src/guest/exec.ts";
import { resumeAs } from "../../packages/node/src/machines/handshake.ts";
import { changedRuns, mappingsOf } from "../../packages/node/src/snapshots/changed-pages.ts";
import type { Loadable } from "../../packages/node/src/snapshots/manifest.ts";
import { writeChangedPages } from "../../packages/node/src/snapshots/memory.ts";
import { PageSums } from "../../packages/node/src/snapshots/page-sums.ts";
import { startByHand, type TapNamespace } from "../support/machine-by-hand.ts";
import { timed } from "./samples.ts";

/** Milliseconds of one capture of a machine that has run `command`. */
export async function captureByHand(
  source: Loadable,
  poolDir: string,
  network: TapNamespace,
  command: string[],
): Promise<number> {
  const machine = await startByHand(source, poolDir, network);
  const { agent, qmp, dir, pid } = machine;
  try {
    await machine.go();
    await resumeAs(agent, { identity: { hostname: "bench", no_sudo: false } });
    const frames = await execInGuest(agent, { argv: command, env: {}, timeout_ms: 60_000 });
    for await (const _ of frames);
    const sums = await PageSums.read(join(source.dir, "mem.sums"));
    const file = await stat(join(source.dir, "mem"), { bigint: true });
    return await timed(async () => {
      await qmp.execute("stop");
      await qmp.execute("xen-save-devices-state", { filename: join(dir, "state") });
      await cloneFile(join(source.dir, "mem"), join(dir, "mem"));
      await cloneFile(join(dir, "disk.qcow2"), join(dir, "disk-copy.qcow2"));
      const runs = changedRuns(pid, mappingsOf(pid, file));
      const parent = join(source.dir, "mem");
      await writeChangedPages({ pid, runs, parent }, { file: join(dir, "mem"), sums });
      await qmp.execute("cont");
    });
  } finally {
    await machine.end();
  }
}
