/**
 * Power cuts at random instants, under load; after each, the host boots from what its disk had promised to keep. The
 * instant is one at which some writes were not flushed, and each of those is lost or not.
 */
import { randomInt } from "node:crypto";
import { statSync } from "node:fs";
import { truncate, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { CheckTools } from "./checks.ts";
import { flatten, overlay } from "./disks.ts";
import { replay, unsafeEnds } from "./write-log.ts";

const MINUTE_MS = 60_000;
/** How long the load runs before the cut. */
const SHORTEST_MS = 20_000;
const LONGEST_MS = 120_000;

/** A saved state that the service acknowledged: `KIND ID SUM`. */
interface Acknowledged {
  state: string;
  /** Where the log of writes ended when it was known here. */
  at: number;
}

/** The service starts at boot by itself before this check: `viv install` was called. */
export async function cutPowerOften(
  { host, command, part, folder, disks }: CheckTools,
  rounds: number,
): Promise<void> {
  const disk = path.join(folder, "durable.img");
  const writeLog = path.join(folder, "writes.log");
  await host.shutDown(15 * MINUTE_MS);
  await flatten(disks.disks[0].file, disk);
  const kept: string[] = [];
  const boot = async (log?: string) => {
    await host.cutPower();
    // QEMU writes to a log that is there, from its beginning.
    if (log !== undefined) await writeFile(log, "");
    host.replaceRoot({
      file: await overlay(path.join(folder, "cut.qcow2"), disk),
      ...(log !== undefined && { writeLog: log }),
    });
    await host.boot();
    await command(`scripts/with-node test/hosts/after-cut.ts '${JSON.stringify(kept)}'`, 60);
  };
  const cut = async (round: number) => {
    await boot(writeLog);
    const loadedFrom = statSync(writeLog).size;
    const acknowledged: Acknowledged[] = [];
    const load = command("scripts/with-node test/hosts/durable-load.ts", 60, (text) =>
      acknowledged.push(...statesIn(text).map((state) => ({ state, at: statSync(writeLog).size }))),
    ).catch(() => {});
    await sleep(randomInt(SHORTEST_MS, LONGEST_MS));
    if (host.isOff) throw new Error("the host was off before its power was cut");
    await host.cutPower();
    await load;
    const ends = await unsafeEnds(writeLog, loadedFrom);
    const cutAt = ends[randomInt(Math.max(1, ends.length))] ?? statSync(writeLog).size;
    await truncate(writeLog, cutAt);
    kept.push(...acknowledged.filter(({ at }) => at <= cutAt).map(({ state }) => state));
    const { writes, lost } = await replay(writeLog, disk, () => randomInt(2) === 0);
    console.log(
      `cut ${round}: ${kept.length} states acknowledged so far; ${lost} of ${writes} writes lost, at one of ${ends.length} instants`,
    );
  };
  for (let round = 1; round <= rounds; round++) await part(() => cut(round));
  await part(boot);
}

/** Whole lines `kept KIND ID SUM` of the load: each was acknowledged by the service before it was printed. */
function statesIn(text: string): string[] {
  return text.split("\n").flatMap((line) => /^kept (\S+ \S+ [0-9a-f]{64})$/.exec(line)?.[1] ?? []);
}
