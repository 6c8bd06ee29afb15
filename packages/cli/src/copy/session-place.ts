/** A session as one side of a copy: contents go through the file API, everything else through shell commands. */
import type { Session } from "@vivarium/sdk";
import { CliError } from "../cli-error.ts";
import { hashInGuest } from "../guest/hash.ts";
import { toServicePath } from "../guest/names.ts";
import { inPortions } from "../guest/portions.ts";
import { quote, runLines } from "../guest/run-in-guest.ts";
import { scanGuest } from "../guest/scan.ts";
import { type FileToPut, type Place, readAll, type ToFinish } from "./entry.ts";

/** Modes that the service gives to new files and directories. */
const NEW_FILE_MODE = 0o644;
const NEW_DIRECTORY_MODE = 0o755;

export function sessionPlace(session: Session, signal: AbortSignal): Place {
  const { files } = session;
  const runForAll = async (command: string, paths: readonly string[], what: string) => {
    const lines = inLines(paths, (names) => `${command} -- ${names}`);
    const [complaint] = await runLines(session, lines, signal);
    if (complaint !== undefined) throw new CliError(`cannot ${what} in the session: ${complaint}`);
  };
  return {
    nameOf: (path) => `${session.id}:${path}`,
    scan: (path, options) => scanGuest(session, path, { ...options, signal }),
    hash: (paths) => hashInGuest(session, paths, signal),
    read: (path) => files.readStream(toServicePath(path), { signal }),
    put: async ({ path, content }) => {
      await files.upload(toServicePath(path), content, { signal });
    },
    putMany: (toPut) => putMany(session, toPut, signal),
    makeDirectories: (paths) => runForAll("mkdir -p", paths, "make directories"),
    removeLinks: (paths) => runForAll("rm -f", paths, "replace links"),
    finish: (what) => runLines(session, finishingLines(what), signal),
  };
}

async function putMany(
  { files }: Session,
  toPut: readonly FileToPut[],
  signal: AbortSignal,
): Promise<Map<string, string>> {
  const batch = await Promise.all(
    toPut.map(async ({ path, content }) => ({ path: toServicePath(path), content: await readAll(content) })),
  );
  const { results } = await files.writeBatch(batch, { signal });
  const failures = new Map<string, string>();
  for (const [i, { ok, error }] of results.entries()) {
    if (!ok) failures.set(toPut[i]?.path ?? "", error ?? "was not written");
  }
  return failures;
}

/** Shell lines that make the links and set times and modes: files with the same mode or time share a line. */
export function finishingLines(what: readonly ToFinish[]): string[] {
  const links = what.filter(({ entry }) => entry.kind === "link");
  const files = what.filter(({ entry }) => entry.kind === "file");
  const byTime = Map.groupBy(files, ({ entry }) => entry.modifiedAt);
  // Deepest paths first: a directory that loses its permissions hides the paths below it.
  const byMode = Map.groupBy(what.filter(needsMode).toReversed(), ({ entry }) => entry.mode);
  return [
    ...links.map(({ path, entry }) => `ln -sfT -- ${quote(entry.target ?? "")} ${quote(path)}`),
    ...[...byTime].flatMap(([at, group]) =>
      inLines(group.map(pathOf), (names) => `touch -c -d @${at} -- ${names}`),
    ),
    ...[...byMode].flatMap(([mode, group]) =>
      inLines(group.map(pathOf), (names) => `chmod ${mode.toString(8)} -- ${names}`),
    ),
  ];
}

const pathOf = ({ path }: ToFinish) => path;

function needsMode({ entry: { kind, mode }, isNew }: ToFinish): boolean {
  if (kind !== "file" && kind !== "directory") return false;
  return !isNew || mode !== (kind === "file" ? NEW_FILE_MODE : NEW_DIRECTORY_MODE);
}

function inLines(paths: readonly string[], line: (names: string) => string): string[] {
  return [...inPortions(paths)].map((portion) => line(portion.map(quote).join(" ")));
}
