/** What threads do for `checks.ts`: reading whole files and summing them. An error's code does not cross by itself. */
import { open } from "node:fs/promises";
import { crc32 } from "node:zlib";
import { PageSums, verifyMemory } from "./page-sums.ts";

const READ_BYTES = 1024 * 1024;

export type Outcome<T> = { value: T } | { failure: { code: string; message: string } };

export interface MemoryCheck {
  memory: string;
  sums: string;
  scope: "all" | "own";
}

/** What is wrong with the pages or with their table; undefined where nothing is. */
export async function memoryDamage({
  memory,
  sums,
  scope,
}: MemoryCheck): Promise<Outcome<string | undefined>> {
  return await outcomeOf(async () => {
    try {
      await verifyMemory(memory, await PageSums.read(sums), scope);
      return undefined;
    } catch (error) {
      // What could not be read at the moment may be whole.
      if ((error as NodeJS.ErrnoException).code !== undefined) throw error;
      return (error as Error).message;
    }
  });
}

export async function fileCrc({ file }: { file: string }): Promise<Outcome<number>> {
  return await outcomeOf(async () => {
    const handle = await open(file, "r");
    try {
      return await crcOf((buffer) => handle.read(buffer, 0, buffer.length));
    } finally {
      await handle.close();
    }
  });
}

/** While one piece is summed, the next one is read. */
async function crcOf(
  read: (buffer: Buffer) => Promise<{ bytesRead: number; buffer: Buffer }>,
): Promise<number> {
  let free: Buffer = Buffer.allocUnsafe(READ_BYTES);
  let reading = read(Buffer.allocUnsafe(READ_BYTES));
  for (let sum = 0; ; ) {
    const { bytesRead, buffer } = await reading;
    if (bytesRead === 0) return sum;
    reading = read(free);
    reading.catch(() => {});
    sum = crc32(buffer.subarray(0, bytesRead), sum);
    free = buffer;
  }
}

async function outcomeOf<T>(work: () => Promise<T>): Promise<Outcome<T>> {
  try {
    return { value: await work() };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    return { failure: { code, message } };
  }
}
