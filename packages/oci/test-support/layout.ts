/** Writes images as OCI layouts, and opens their files as the reader of a layout wants it: never through a link. */
import { lstat, mkdir, open, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { OpenLayoutFile } from "../src/image-layout.ts";
import { type MadeImage, TYPES } from "./image.ts";

export interface WrittenLayout {
  directory: string;
  /** Path of the file with this digest. */
  blob: (digest: string) => string;
  open: OpenLayoutFile;
}

/** As buildah does it: the index leads to the manifest, and does not say for which platform it is. */
export async function writeLayout(
  directory: string,
  image: MadeImage,
  index: object = {},
): Promise<WrittenLayout> {
  const blob = (digest: string) => join(directory, "blobs", digest.replace(":", "/"));
  for (const [digest, bytes] of image.blobs) {
    await mkdir(dirname(blob(digest)), { recursive: true });
    await writeFile(blob(digest), bytes);
  }
  const size = image.blobs.get(image.manifest)?.length;
  const entry = { mediaType: TYPES.manifest, digest: image.manifest, size };
  await writeFile(join(directory, "oci-layout"), '{"imageLayoutVersion": "1.0.0"}');
  const document = { schemaVersion: 2, manifests: [entry], ...index };
  await writeFile(join(directory, "index.json"), JSON.stringify(document));
  return { directory, blob, open: openerOf(directory) };
}

function openerOf(directory: string): OpenLayoutFile {
  return async (path) => {
    for (let at = dirname(path); at !== "."; at = dirname(at))
      if (!(await isA(join(directory, at), "isDirectory"))) return undefined;
    const file = join(directory, path);
    if (!(await isA(file, "isFile"))) return undefined;
    const handle = await open(file);
    const { size } = await handle.stat();
    return {
      sizeBytes: size,
      content: handle.createReadStream({ end: Math.max(0, size - 1) }),
      close: () => void handle.close().catch(() => {}),
    };
  };
}

async function isA(file: string, kind: "isDirectory" | "isFile"): Promise<boolean> {
  return await lstat(file).then(
    (found) => found[kind](),
    () => false,
  );
}
