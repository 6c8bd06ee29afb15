/**
 * A process that unpacks a saved state and never gets a chunk, so that it can be killed meanwhile. Its argument is the host, the
 * state and the keys, as JSON. It writes the id of the process that works for it once that has asked for a chunk.
 */
import { readFileSync } from "node:fs";
import { PassThrough } from "node:stream";
import { serveChunks } from "@vivarium/archive/serve-chunks";
import { createLog } from "@vivarium/kit/log";
import { Archives, type Keys } from "../src/archives/archives.ts";
import { SnapshotTable } from "../src/snapshots/table.ts";

export interface UnpackingForEver {
  dataDir: string;
  id: string;
  archiveId: string;
  contents: string;
  keys: Keys;
  /** The object with the contents, base64. */
  object: string;
}

const work = JSON.parse(process.argv[2] ?? "") as UnpackingForEver;
const { dataDir, id, archiveId, contents, keys } = work;
const log = createLog("test", "silent");
const none = async () => undefined;
const archives = new Archives({
  baselines: { withId: none, find: none, get: () => undefined },
  snapshots: new SnapshotTable({ dataDir, log }),
  gate: { reserve: async () => () => {} },
  ...{ log, niceness: 0, dataDir },
});
const [asks, answers] = [new PassThrough(), new PassThrough()];
const store = {
  names: async function* () {},
  put: async () => undefined,
  get: async (name: string) => {
    if (name === contents) return Buffer.from(work.object, "base64");
    process.stdout.write(readFileSync(`/proc/self/task/${process.pid}/children`, "utf8"));
    return await new Promise<never>(() => {});
  },
};
void serveChunks(store, asks, answers);
const accepted = await archives.unpack(id, { archive_id: archiveId, contents }, keys);
await accepted({ asks, answers });
