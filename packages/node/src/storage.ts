/**
 * Program of `viv storage`: what is in the pool of a node, which may run meanwhile. Writes lines of JSON:
 *
 *   storage.ts check --data-dir DIR --images-dir DIR --rate BYTES
 *     {"expect": bytes}                                 first
 *     {"read": bytes}                                   so far, now and then
 *     {"checked": {"kind", "id", "damages": [text]}}    for each snapshot, baseline and volume
 *   storage.ts list --data-dir DIR --images-dir DIR
 *     {"stored": {"kind", "id", "bytes", "shared_bytes"}}    for each, and for each machine
 */
import { existsSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { Pace } from "@vivarium/kit/pace";
import { messageOf } from "@vivarium/kit/unknown-error";
import { readThrough } from "./disks/read-through.ts";
import { type Place, placesOf, spaceOf, volumeInodes } from "./storage/places.ts";
import { damagesOf } from "./storage/read-back.ts";

const PROGRESS_MS = 500;

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    "data-dir": { type: "string" },
    "images-dir": { type: "string" },
    rate: { type: "string", default: "0" },
  },
});
const [dataDir, imagesDir] = [values["data-dir"], values["images-dir"]];

const write = (line: object) => void process.stdout.write(`${JSON.stringify(line)}\n`);

async function main(): Promise<void> {
  if (dataDir === undefined || imagesDir === undefined)
    throw new Error("--data-dir and --images-dir are needed");
  const places = await placesOf(dataDir, imagesDir);
  if (positionals[0] === "check") await check(places, Number(values.rate) || Number.POSITIVE_INFINITY);
  else if (positionals[0] === "list") await list(places);
  else throw new Error(`expected check or list, got ${positionals[0]}`);
}

async function list(places: readonly Place[]): Promise<void> {
  const volumes = await volumeInodes(places);
  for (const place of places) {
    const { kind, id } = place;
    const { bytes, sharedBytes } = await spaceOf(place, { volumes });
    write({ stored: { kind, id, bytes, shared_bytes: sharedBytes } });
  }
}

async function check(places: readonly Place[], bytesPerSecond: number): Promise<void> {
  const checked = places.filter(({ kind }) => kind !== "machine");
  let expected = 0;
  for (const place of checked) expected += (await spaceOf(place, { withShared: false })).bytes;
  write({ expect: expected });
  const pace = new Pace(bytesPerSecond);
  const disks = new Set<string>();
  const progress = setInterval(() => write({ read: pace.bytes }), PROGRESS_MS);
  try {
    for (const place of checked) {
      const damages = await damagesIn(place, disks, (bytes) => pace.take(bytes));
      // A snapshot that was removed meanwhile is not damaged.
      if (damages.length === 0 || existsSync(place.dir))
        write({ checked: { kind: place.kind, id: place.id, damages } });
    }
  } finally {
    clearInterval(progress);
    write({ read: pace.bytes });
  }
}

async function damagesIn(
  { dir, kind }: Place,
  disks: Set<string>,
  onRead: (bytes: number) => Promise<void>,
): Promise<string[]> {
  if (kind !== "volume") return await damagesOf(dir, disks, onRead);
  // Its guest may write to it at any time, so it has no sum: that it can be read is all that can be said.
  try {
    await readThrough(path.join(dir, "image"), onRead);
    return [];
  } catch (error) {
    return [messageOf(error)];
  }
}

main().catch((error: unknown) => {
  process.stderr.write(`${messageOf(error)}\n`);
  process.exitCode = 1;
});
