/** Saves the files of an artifact below a directory. Each is whole there, or absent; what has arrived of one is kept beside it. */
import { mkdir, open, rename, stat } from "node:fs/promises";
import path from "node:path";
import type { Artifact, Artifacts } from "@vivarium/sdk";
import { CliError } from "../../cli-error.ts";
import type { Progress } from "../../copy/progress.ts";

export interface Saved {
  files: number;
  bytes: number;
  /** Files that were there already. */
  skipped: number;
}

interface SaveDeps {
  artifacts: Pick<Artifacts, "download">;
  progress: Progress;
  signal: AbortSignal;
}

type File = NonNullable<Artifact["files"]>[number];

export async function saveArtifact(
  deps: SaveDeps,
  { id, files = [] }: Artifact,
  directory: string,
): Promise<Saved> {
  for (const file of files) requirePlain(file.path);
  const saved = { files: 0, bytes: 0, skipped: 0 };
  deps.progress.expect(
    files.reduce((sum, file) => sum + file.size_bytes, 0),
    files.length,
  );
  for (const file of files) {
    const bytes = await saveFile(deps, id, file, path.join(directory, file.path));
    if (bytes === undefined) saved.skipped++;
    else {
      saved.files++;
      saved.bytes += bytes;
    }
    deps.progress.finished(1);
  }
  return saved;
}

/** Returns the bytes that were downloaded; undefined for a file that was there. */
async function saveFile(
  { artifacts, progress, signal }: SaveDeps,
  id: string,
  file: File,
  target: string,
): Promise<number | undefined> {
  if ((await sizeOf(target)) === file.size_bytes) {
    progress.moved(file.size_bytes);
    return undefined;
  }
  await mkdir(path.dirname(target), { recursive: true });
  const partial = `${target}.${id}.part`;
  const there = (await sizeOf(partial)) ?? 0;
  const from = there <= file.size_bytes ? there : 0;
  progress.moved(from);
  const handle = await open(partial, from > 0 ? "a" : "w");
  try {
    for await (const chunk of artifacts.download(file, { from, signal })) {
      // Written before the next one is asked for: what has arrived is kept, whatever breaks off.
      await handle.writeFile(chunk);
      progress.moved(chunk.byteLength);
    }
  } finally {
    await handle.close();
  }
  await rename(partial, target);
  return file.size_bytes - from;
}

async function sizeOf(file: string): Promise<number | undefined> {
  const found = await stat(file).catch(() => undefined);
  return found?.isFile() ? found.size : undefined;
}

/** The service is not believed either: no file is written outside of the directory. */
function requirePlain(file: string): void {
  const isPlain = file.split("/").every((part) => part !== "" && part !== "." && part !== "..");
  if (!isPlain || file.includes("\0") || path.isAbsolute(file))
    throw new CliError(`the service names a file outside of the artifact: ${JSON.stringify(file)}`);
}
