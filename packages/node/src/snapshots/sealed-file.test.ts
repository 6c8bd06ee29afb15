import { randomBytes } from "node:crypto";
import { closeSync, openSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { UnusableSnapshot } from "./page-sums.ts";
import { readSealedBytes, writeSealedBytes } from "./sealed-bytes.ts";
import { readSealed, SEGMENT_BYTES, SealedWriter } from "./sealed-file.ts";

const BEGINNING = 40;
/** Length of a segment's content, and its tag. */
const EXTRA = 4 + 16;
const sealing = { key: randomBytes(32), label: "pau_1" };

let dir: string;
let file: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "sealed-file-"));
  file = path.join(dir, "sealed");
});
afterEach(() => rm(dir, { recursive: true, force: true }));

function write(segments: Buffer[], name = file): number {
  const fd = openSync(name, "w");
  try {
    const writer = new SealedWriter(fd, sealing);
    for (const segment of segments) writer.write(segment);
    return writer.end();
  } finally {
    closeSync(fd);
  }
}

function read(how = sealing): Buffer[] {
  const fd = openSync(file, "r");
  try {
    return [...readSealed(fd, how)];
  } finally {
    closeSync(fd);
  }
}

const THREE = ["first", "other", "third"].map((text) => Buffer.from(text));
/** Size of each of the three segments in the file. */
const SIZE = EXTRA + 5;

/** The file's beginning, its three segments and its end. */
async function pieces(): Promise<Buffer[]> {
  write(THREE);
  const bytes = await readFile(file);
  const cuts = [0, BEGINNING, ...[1, 2, 3].map((n) => BEGINNING + n * SIZE), bytes.length];
  return cuts.slice(1).map((end, i) => bytes.subarray(cuts[i], end));
}

it.each([[[]], [THREE], [[randomBytes(SEGMENT_BYTES), randomBytes(1)]]])(
  "gives back what it was given, and has the size that it says",
  async (segments) => {
    expect(write(segments)).toBe((await readFile(file)).length);
    expect(read()).toEqual(segments);
  },
);

it("contains nothing of its content, and differs each time", async () => {
  const content = Buffer.alloc(4096, "canary");
  write([content, content]);
  const once = await readFile(file);
  write([content, content]);
  const twice = await readFile(file);
  for (const bytes of [once, twice]) expect(bytes.includes("canary")).toBe(false);
  for (let at = BEGINNING + 4; at < once.length; at += 16)
    expect(twice.includes(once.subarray(at, at + 16))).toBe(false);
});

it.each([
  ["another key", { ...sealing, key: randomBytes(32) }],
  ["another label", { ...sealing, label: "pau_2" }],
])("does not open with %s", (_title, how) => {
  write(THREE);
  expect(() => read(how)).toThrow(UnusableSnapshot);
});

it.each<[string, (all: Buffer[]) => (Buffer | undefined)[]]>([
  ["swapped segments", ([head, a, b, ...rest]) => [head, b, a, ...rest]],
  ["a segment twice", ([head, a, ...rest]) => [head, a, a, ...rest]],
  ["a segment less", ([head, _, ...rest]) => [head, ...rest]],
  ["no last segment", (all) => all.slice(0, -1)],
  ["no end", (all) => all.slice(0, -2)],
  ["an end too early", (all) => [...all.slice(0, 2), all.at(-1)]],
  ["half a segment", (all) => [...all.slice(0, -2), all.at(-2)?.subarray(0, 9)]],
  ["more after its end", (all) => [...all, Buffer.from("x")]],
  ["half a beginning", ([head]) => [head?.subarray(0, 20)]],
  ["nothing at all", () => []],
])("does not open with %s", async (_title, change) => {
  await writeFile(file, Buffer.concat(change(await pieces()) as Buffer[]));
  expect(() => read()).toThrow(UnusableSnapshot);
});

it("does not open with a segment of another file of the same key and label", async () => {
  const [, foreign = Buffer.alloc(0)] = await pieces();
  const own = await pieces();
  await writeFile(file, Buffer.concat(own.with(1, foreign)));
  expect(() => read()).toThrow(UnusableSnapshot);
});

it("does not open with any bit flipped", async () => {
  const whole = Buffer.concat(await pieces());
  for (let at = 0; at < whole.length; at++) {
    const bytes = Buffer.from(whole);
    bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << (at % 8)), at);
    await writeFile(file, bytes);
    expect(() => read(), `byte ${at}`).toThrow(UnusableSnapshot);
  }
});

it.each([0, 1, SEGMENT_BYTES, SEGMENT_BYTES + 1])("keeps %i bytes as a whole", (bytes) => {
  const content = randomBytes(bytes);
  writeSealedBytes(file, sealing, content);
  expect(readSealedBytes(file, sealing).equals(content)).toBe(true);
});
