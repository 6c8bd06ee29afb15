/** Copies a file or a tree from one place to another. */
import { hasCode } from "@vivarium/kit/unknown-error";
import { VivariumError } from "@vivarium/sdk";
import { CliError, UsageError } from "../cli-error.ts";
import { inGroups } from "../guest/portions.ts";
import { destinationOf } from "./destination.ts";
import { type FileToPut, join, type Place } from "./entry.ts";
import { inParallel } from "./in-parallel.ts";
import { planCopy } from "./plan.ts";
import { meter, type Progress } from "./progress.ts";

const FILES_AT_ONCE = 6;
/** Files up to this many bytes are sent in batches, where the target supports batches. */
const SMALL_BYTES = 128 * 1024;
const BATCH = { items: 64, bytes: 4 * 1024 * 1024 };

export interface Copied {
  files: number;
  bytes: number;
  /** Files that were equal on both sides and were not sent. */
  skipped: number;
  /** One line for each thing that could not be copied or set. */
  problems: string[];
}

export async function copy(
  { source, target, progress }: { source: Place; target: Place; progress: Progress },
  { from, to, recursive }: { from: string; to: string; recursive: boolean },
): Promise<Copied> {
  const tree = await source.scan(from, recursive ? {} : { depth: 0 });
  const root = tree?.get("");
  if (tree === undefined || root === undefined)
    throw new CliError(`${source.nameOf(from)}: no such file or directory`);
  if (root.kind === "directory" && !recursive)
    throw new UsageError(`${source.nameOf(from)} is a directory; add -r to copy it`);
  // Hazard: a link copied from a session would lead the next copy to any path that the session chose.
  if (root.kind === "link") {
    throw new CliError(`${source.nameOf(from)} is a link that leads nowhere`);
  }
  const destination = await destinationOf(target, { from, to });
  // Only a link at the path that the human gave is followed: a link below it may come from an earlier copy.
  const there = (await target.scan(destination, { isLinkKept: destination !== to })) ?? new Map();
  const plan = await planCopy(
    { place: source, root: from, tree },
    { place: target, root: destination, tree: there },
  );
  progress.expect(
    plan.files.reduce((sum, { entry }) => sum + entry.bytes, 0),
    plan.files.length,
  );
  await target.makeDirectories(plan.directories.filter((path) => !isDirectory(path)));
  await target.removeLinks?.(plan.overLinks);
  const toPut = plan.files.map(({ from: file, to: path, entry }) => ({
    path,
    bytes: entry.bytes,
    content: meter(source.read(file), entry.bytes, progress),
  }));
  const failed = await putAll(target, toPut, progress);
  const finishing = plan.finishing.filter(({ path }) => !failed.has(path));
  const unfinished = await target.finish(finishing);
  const sent = toPut.filter(({ path }) => !failed.has(path));
  return {
    files: sent.length,
    bytes: sent.reduce((sum, { bytes }) => sum + bytes, 0),
    skipped: plan.equal,
    problems: [
      ...[...tree].flatMap(([path, { unread }]) =>
        unread === undefined ? [] : [`${source.nameOf(join(from, path))} was not read whole: ${unread}`],
      ),
      ...plan.leftOut.map(
        (name) => `${name} was left out: it is no file, directory or link, or its name is no UTF-8`,
      ),
      ...[...failed].map(([path, problem]) => `${target.nameOf(path)}: ${problem}`),
      ...unfinished,
    ],
  };
  function isDirectory(path: string): boolean {
    const relative = path.slice(destination.length).replace(/^\//, "");
    return there.get(relative)?.kind === "directory";
  }
}

/** Writes all files; returns failures by path, since one file that fails does not stop the others. */
async function putAll(
  target: Place,
  files: readonly FileToPut[],
  progress: Progress,
): Promise<Map<string, string>> {
  const failed = new Map<string, string>();
  const isSmall = ({ bytes }: FileToPut) => target.putMany !== undefined && bytes <= SMALL_BYTES;
  const batches = [
    ...inGroups(files.filter(isSmall), ({ bytes }) => bytes, BATCH),
    ...files.filter((file) => !isSmall(file)).map((file) => [file]),
  ];
  await inParallel(batches, FILES_AT_ONCE, async (batch) => {
    const [only] = batch;
    if (target.putMany !== undefined && batch.length > 1) {
      for (const [path, problem] of await target.putMany(batch)) failed.set(path, problem);
    } else if (only !== undefined) {
      const problem = await target.put(only).then(() => undefined, messageOfFileFailure);
      if (problem !== undefined) failed.set(only.path, problem);
    }
    const uncounted = batch.filter(({ content }) => "file" in content);
    progress.moved(uncounted.reduce((sum, { bytes }) => sum + bytes, 0));
    progress.finished(batch.length);
  });
  return failed;
}

/** The message of an error that concerns one file; rethrows every other error. */
function messageOfFileFailure(error: unknown): string {
  const isRefusal =
    error instanceof VivariumError && ["validation", "not_found", "payload_too_large"].includes(error.code);
  const isUnreadable = hasCode(error, "EACCES", "EPERM", "ENOENT", "EISDIR");
  if (isRefusal || isUnreadable) return error.message;
  throw error;
}
