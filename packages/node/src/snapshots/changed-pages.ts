/**
 * Which pages of its memory a stopped QEMU has changed since it mapped the snapshot's file privately: those that are
 * anonymous now (pagemap: present or swapped, and not backed by the file). Linux Documentation/admin-guide/mm/pagemap.
 */
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { PAGE_BYTES } from "./page-sums.ts";

/** A piece of the memory file in the process's address space. */
export interface Mapping {
  start: number;
  end: number;
  fileOffset: number;
}

const ENTRY_BYTES = 8;
const BATCH_BYTES = 1024 * 1024;
/** Upper halves of a pagemap entry: bits 63, 62 and 61. */
const PRESENT = 2 ** 31;
const SWAPPED = 2 ** 30;
const FILE_BACKED = 2 ** 29;

export function mappingsOf(pid: number, inode: bigint): Mapping[] {
  const lines = readFileSync(`/proc/${pid}/maps`, "utf8").split("\n");
  return lines.flatMap((line) => {
    const match = /^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ (\d+)/.exec(line);
    if (!match || BigInt(match[4] as string) !== inode) return [];
    const [start, end, fileOffset] = match.slice(1, 4).map((hex) => Number.parseInt(hex, 16));
    return [{ start, end, fileOffset } as Mapping];
  });
}

/** A run of changed pages: where it is in the process and in the file. */
export interface ChangedRun {
  address: number;
  fileOffset: number;
  bytes: number;
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
