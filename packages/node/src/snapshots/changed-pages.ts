/**
 * Finds the memory pages that a stopped QEMU has changed since it mapped the snapshot's file privately: the pages
 * that are anonymous now (pagemap: present or swapped, and not backed by the file; Linux
 * Documentation/admin-guide/mm/pagemap).
 */
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { MIB } from "@vivarium/kit/sizes";
import { PAGE_BYTES } from "./page-sums.ts";

/** A piece of the memory file in the process's address space. */
export interface Mapping {
  start: number;
  end: number;
  fileOffset: number;
}

const ENTRY_BYTES = 8;
const BATCH_BYTES = MIB;
/** Bits 63, 62 and 61 of a pagemap entry, in its upper half. */
const PRESENT = 2 ** 31;
const SWAPPED = 2 ** 30;
const FILE_BACKED = 2 ** 29;

/**
 * How a process maps a whole file. Mappings are matched by the file's inode number, which a file of another file
 * system may share. The check that the pieces cover the file exactly once rules that out.
 */
export function mappingsOf(pid: number, file: { ino: bigint; size: bigint }): Mapping[] {
  const lines = readFileSync(`/proc/${pid}/maps`, "utf8").split("\n");
  const found = lines.flatMap((line) => {
    const match = /^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) (\S+) (\d+)/.exec(line);
    if (!match || BigInt(match[5] as string) !== file.ino) return [];
    const [start, end, fileOffset] = match.slice(1, 4).map((hex) => Number.parseInt(hex, 16));
    return [{ start, end, fileOffset, device: match[4] } as Mapping & { device: string }];
  });
  const devices = Map.groupBy(found, ({ device }) => device);
  const whole = [...devices.values()].filter((mappings) => isWhole(mappings, Number(file.size)));
  if (whole.length === 1) return whole[0] as Mapping[];
  throw new Error("the process does not map its memory file as a whole");
}

function isWhole(mappings: Mapping[], bytes: number): boolean {
  let end = 0;
  for (const mapping of mappings.toSorted((a, b) => a.fileOffset - b.fileOffset)) {
    if (mapping.fileOffset !== end) return false;
    end += mapping.end - mapping.start;
  }
  return end === bytes;
}

/** A run of changed pages: its address in the process and its offset in the file. */
export interface ChangedRun {
  address: number;
  fileOffset: number;
  bytes: number;
}

const RUN_NUMBERS = 3;

/** Packs the runs into one typed array: a guest that changes every second page has hundreds of thousands of runs. */
export function packRuns(runs: ChangedRun[]): Float64Array {
  const packed = new Float64Array(runs.length * RUN_NUMBERS);
  for (const [i, { address, fileOffset, bytes }] of runs.entries())
    packed.set([address, fileOffset, bytes], i * RUN_NUMBERS);
  return packed;
}

export function* unpackRuns(packed: Float64Array): Generator<ChangedRun> {
  for (let i = 0; i < packed.length; i += RUN_NUMBERS) {
    const [address, fileOffset, bytes] = packed.subarray(i, i + RUN_NUMBERS) as unknown as number[];
    yield { address, fileOffset, bytes } as ChangedRun;
  }
}

export function changedRuns(pid: number, mappings: Mapping[]): ChangedRun[] {
  const pagemap = openSync(`/proc/${pid}/pagemap`, "r");
  try {
    return mappings.flatMap((mapping) => runsIn(pagemap, mapping));
  } finally {
    closeSync(pagemap);
  }
}

function runsIn(pagemap: number, { start, end, fileOffset }: Mapping): ChangedRun[] {
  const runs: ChangedRun[] = [];
  const buffer = new ArrayBuffer(BATCH_BYTES);
  const bytes = new Uint8Array(buffer);
  const words = new Uint32Array(buffer);
  let run: ChangedRun | undefined;
  for (let address = start; address < end; ) {
    const wanted = Math.min(BATCH_BYTES, ((end - address) / PAGE_BYTES) * ENTRY_BYTES);
    const got = readSync(pagemap, bytes, 0, wanted, (address / PAGE_BYTES) * ENTRY_BYTES);
    if (got < ENTRY_BYTES) throw new Error("the process's page map ends early");
    const pages = Math.floor(got / ENTRY_BYTES);
    for (let i = 0; i < pages; i++, address += PAGE_BYTES) {
      const upper = words[2 * i + 1] as number;
      const isChanged = upper >= PRESENT ? (upper & FILE_BACKED) === 0 : (upper & SWAPPED) !== 0;
      if (!isChanged) run = undefined;
      else if (run) run.bytes += PAGE_BYTES;
      else {
        run = { address, fileOffset: fileOffset + (address - start), bytes: PAGE_BYTES };
        runs.push(run);
      }
    }
  }
  return runs;
}
