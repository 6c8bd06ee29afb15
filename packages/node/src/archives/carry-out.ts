/** Packs or unpacks one saved state: the work of the process that does nothing else. */
import path from "node:path";
import type { ChunkStore } from "@vivarium/archive/chunk-store";
import { packFolder } from "@vivarium/archive/pack";
import { unpackFolder } from "@vivarium/archive/unpack";
import { UnusableArchive } from "@vivarium/archive/unusable-archive";
import type { ArchiveRefusal } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import { hasCode, messageOf } from "@vivarium/kit/unknown-error";
import { describeAgain } from "../snapshots/describe-again.ts";
import { crcOfFile } from "../snapshots/file-crc.ts";
import { filesOf, manifestPath, readManifest, type Sums, verifyFiles } from "../snapshots/manifest.ts";
import { PageSums, UnusableSnapshot, verifyMemory } from "../snapshots/page-sums.ts";
import type { Order, Outcome } from "./order.ts";

/** Nothing else waits for this process, so it sums by itself. */
const SUMS: Sums = {
  crcOfFile: (file) => crcOfFile(file),
  verifyMemory: async (file, sums, scope) => await verifyMemory(file, await PageSums.read(sums), scope),
};

export async function carryOut(store: ChunkStore, order: Order): Promise<Outcome> {
  try {
    return order.action === "pack" ? await pack(store, order) : await unpack(store, order);
  } catch (error) {
    return { refused: refusalOf(error, order) };
  }
}

/** A damaged state is not packed: that would be found when it is needed, and nothing else is left by then. */
async function pack(store: ChunkStore, order: Order): Promise<Outcome> {
  const { dir, base } = order;
  const manifest = await readManifest(dir);
  await verifyFiles(SUMS, { dir, manifest });
  crashPoint("pack.verified");
  const files = [...filesOf(manifest), path.basename(manifestPath(dir))];
  const packed = await packFolder(spaceOf(store, order), ownOf(order), { dir, files, ...(base && { base }) });
  crashPoint("pack.sent");
  return {
    packed: {
      contents: packed.contents,
      chunks: packed.chunks,
      differing_bytes: packed.differing,
      sent_bytes: packed.sent,
    },
  };
}

async function unpack(store: ChunkStore, order: Order): Promise<Outcome> {
  const { dir, base, contents = "" } = order;
  await unpackFolder(
    spaceOf(store, order),
    ownOf(order),
    { contents, dir },
    {
      ...(base && { base }),
      beforeVisible: async (partial) => {
        crashPoint("unpack.written");
        await describeAgain(partial, SUMS);
        crashPoint("unpack.described");
      },
    },
  );
  crashPoint("unpack.visible");
  return { isUnpacked: true };
}

const spaceOf = (store: ChunkStore, { secret }: Order) => ({
  store,
  secret: Buffer.from(secret, "base64url"),
});
const ownOf = ({ key, archiveId: label }: Order) => ({ key: Buffer.from(key, "base64url"), label });

function refusalOf(error: unknown, { action }: Order): ArchiveRefusal {
  const message = messageOf(error);
  if (error instanceof UnusableArchive) return { code: "archive_unusable", reason: error.reason, message };
  if (error instanceof UnusableSnapshot)
    return action === "pack"
      ? { code: "snapshot_damaged", message: `the saved state cannot be packed: ${message}` }
      : { code: "archive_unusable", reason: "damaged", message: `it is not what was saved: ${message}` };
  if (hasCode(error, "ENOSPC") || hasCode(error, "EDQUOT"))
    return { code: "disk_pressure", message: "this node has too little free disk for this; try again later" };
  // The message of the system has paths of this host.
  const { code } = error as NodeJS.ErrnoException;
  return { code: "archive_interrupted", message: code === undefined ? message : `a file failed: ${code}` };
}
