/** Makes the empty disk of a machine whose disk is encrypted: qcow2 with LUKS (QEMU docs/interop/qcow2, version 3). */
import { open } from "node:fs/promises";
import { KIB, MIB } from "@vivarium/kit/sizes";
import { LUKS_HEADER_BYTES, makeLuksHeader } from "./luks.ts";

const CLUSTER_BITS = 16;
const CLUSTER_BYTES = 64 * KIB;
/** Bytes of the disk that an entry of the first table stands for. */
const BYTES_PER_ENTRY = 512 * MIB;
const ENTRIES_PER_CLUSTER = CLUSTER_BYTES / 8;
const HEADER_BYTES = 112;
const CRYPT_LUKS = 2;
const REFCOUNT_ORDER = 4;
const EXTENSION_OF_CRYPTO = 0x0537be77;
/** Clusters of the file, in this order. The header of LUKS takes the rest. */
const CLUSTER = { refcounts: 1, refcountBlock: 2, firstTable: 3, luks: 4 };
const CLUSTERS = CLUSTER.luks + Math.ceil(LUKS_HEADER_BYTES / CLUSTER_BYTES);

/** QEMU opens the file with the passphrase. What it writes into it is encrypted; what is below it in the chain is not. */
export async function makeSealedDisk(
  file: string,
  { bytes, passphrase }: { bytes: number; passphrase: string },
): Promise<void> {
  const entries = Math.ceil(bytes / BYTES_PER_ENTRY);
  if (entries > ENTRIES_PER_CLUSTER) throw new Error("the disk is too large");
  const handle = await open(file, "wx", 0o600);
  try {
    const writeAt = async (cluster: number, content: Buffer) =>
      await handle.write(content, 0, content.length, cluster * CLUSTER_BYTES);
    await writeAt(0, header(bytes, entries));
    await writeAt(CLUSTER.refcounts, offsetOf(CLUSTER.refcountBlock));
    await writeAt(CLUSTER.refcountBlock, Buffer.concat(Array(CLUSTERS).fill(Buffer.from([0, 1]))));
    await writeAt(CLUSTER.luks, makeLuksHeader(passphrase));
    // The first table is empty, and so is the end of the header of LUKS.
    await handle.truncate(CLUSTERS * CLUSTER_BYTES);
  } finally {
    await handle.close();
  }
}

function header(bytes: number, entries: number): Buffer {
  const fields = Buffer.alloc(HEADER_BYTES + 32);
  fields.write("QFI\xfb", "latin1");
  fields.writeUInt32BE(3, 4);
  fields.writeUInt32BE(CLUSTER_BITS, 20);
  fields.writeBigUInt64BE(BigInt(bytes), 24);
  fields.writeUInt32BE(CRYPT_LUKS, 32);
  fields.writeUInt32BE(entries, 36);
  offsetOf(CLUSTER.firstTable).copy(fields, 40);
  offsetOf(CLUSTER.refcounts).copy(fields, 48);
  fields.writeUInt32BE(1, 56);
  fields.writeUInt32BE(REFCOUNT_ORDER, 96);
  fields.writeUInt32BE(HEADER_BYTES, 100);
  // One extension, and after it eight zeros, which are the end of extensions.
  fields.writeUInt32BE(EXTENSION_OF_CRYPTO, HEADER_BYTES);
  fields.writeUInt32BE(16, HEADER_BYTES + 4);
  offsetOf(CLUSTER.luks).copy(fields, HEADER_BYTES + 8);
  fields.writeBigUInt64BE(BigInt(LUKS_HEADER_BYTES), HEADER_BYTES + 16);
  return fields;
}

function offsetOf(cluster: number): Buffer {
  const offset = Buffer.alloc(8);
  offset.writeBigUInt64BE(BigInt(cluster * CLUSTER_BYTES));
  return offset;
}
