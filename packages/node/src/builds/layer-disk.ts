/**
 * The disk from which a builder reads the layers: a table, then the layers as they were fetched. One disk for all of them,
 * because a machine has few places for disks. The host reads nothing inside of a layer.
 */
import { open, stat } from "node:fs/promises";
import {
  LAYER_ALIGNMENT,
  LAYER_TABLE_BYTES,
  type LayerOnDisk,
  type LayerTable,
} from "@vivarium/contract/guest";
import { cloneInto } from "../disks/clone.ts";
import { BuildError } from "./build-error.ts";

export interface LayerFile {
  /** Its bytes were verified. Two layers may have one file. */
  path: string;
  digest: string;
  /** Digest of the unpacked layer, by the image's configuration. */
  diffId: string;
  compression: LayerOnDisk["compression"];
  sizeBytes: number;
}

/** `environment`: the image's variables, as the builder puts them into the image. */
export async function makeLayerDisk(
  file: string,
  layers: readonly LayerFile[],
  environment: string,
): Promise<void> {
  const disk = await open(file, "wx", 0o600);
  try {
    await disk.truncate(LAYER_TABLE_BYTES);
    const rows: LayerOnDisk[] = [];
    const offsets = new Map<string, number>();
    let end = LAYER_TABLE_BYTES;
    for (const layer of layers) {
      const known = offsets.get(layer.path);
      const offset = known ?? end;
      if (known === undefined) {
        await putLayer(layer, file, offset);
        offsets.set(layer.path, offset);
        end = Math.ceil((offset + layer.sizeBytes) / LAYER_ALIGNMENT) * LAYER_ALIGNMENT;
      }
      const { sizeBytes: bytes, compression, diffId: diff_id } = layer;
      rows.push({ offset, bytes, compression, diff_id });
    }
    await disk.truncate(end);
    await disk.write(tableOf({ layers: rows, environment }), 0, null, 0);
  } finally {
    await disk.close();
  }
}

async function putLayer({ path, digest, sizeBytes }: LayerFile, file: string, offset: number): Promise<void> {
  const { size } = await stat(path);
  if (size !== sizeBytes)
    throw new BuildError("internal", `layer ${digest} has ${size} bytes, and should have ${sizeBytes}`);
  await cloneInto(path, file, offset);
}

function tableOf(table: LayerTable): Buffer {
  const text = Buffer.from(`${JSON.stringify(table)}\0`);
  if (text.length <= LAYER_TABLE_BYTES) return text;
  throw new BuildError("image_too_large", "the image has too many layers, or variables that are too long");
}
