/**
 * A process that packs or unpacks and is to be killed: after each chunk it writes a line. Arguments: JSON with the
 * directory of the store, the secret, the key and label, and what is to be done.
 */
import { DirectoryStore } from "@vivarium/objects/directory-store";
import { ChunksInObjects } from "../src/chunk-store.ts";
import { packFolder, type Source } from "../src/pack.ts";
import { unpackFolder } from "../src/unpack.ts";

export interface Work {
  objects: string;
  secret: string;
  key: string;
  label: string;
  pack?: Source;
  unpack?: { contents: string; dir: string };
}

const work = JSON.parse(process.argv[2] ?? "") as Work;
const store = new ChunksInObjects(await DirectoryStore.open(work.objects), "o/a/");
const space = { store, secret: Buffer.from(work.secret, "hex") };
const own = { key: Buffer.from(work.key, "hex"), label: work.label };
const step = () => void process.stdout.write("step\n");
if (work.pack) await packFolder(space, own, work.pack, { onProgress: step });
if (work.unpack)
  await unpackFolder(space, own, work.unpack, { onProgress: step, beforeVisible: async () => step() });
step();
