/** `viv cp`: copies files between this machine and sessions, or between sessions. */
import type { Client } from "@vivarium/sdk";
import { absolutePath, asSessionPath } from "../args/session-path.ts";
import { UsageError } from "../cli-error.ts";
import { type Copied, copy } from "../copy/copy.ts";
import type { Place } from "../copy/entry.ts";
import { localPlace } from "../copy/local-place.ts";
import { noProgress, progressLine } from "../copy/progress.ts";
import { sessionPlace } from "../copy/session-place.ts";
import { EXIT } from "../exit-codes.ts";
import { formatBytes } from "../print/bytes.ts";
import { plainText } from "../print/table.ts";
import { formatSeconds } from "../print/time.ts";
import { withInterrupt } from "../service/interrupt.ts";
import { type FindSession, sessionFinder } from "../sessions/find-session.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

interface CpOptions {
  recursive?: boolean;
  quiet?: boolean;
}

export function cpCommand(): Verb {
  return clientVerb("cp", [
    "viv cp data.csv 4x7k2m9q0a1b2c3d4e5f6:",
    "viv cp -r src 4x7k2m9q0a1b2c3d4e5f6:project",
    "viv cp -r 4x7k2m9q0a1b2c3d4e5f6:project/dist/. ./dist",
  ])
    .summary("copy files into and out of sessions")
    .description(
      `Copy files between this machine and a session, or from one session to another. ID:PATH is a path in a session;
a local path with a colon in its name begins with ./ here. Into a directory that is there, a copy goes under its own
name, as with cp; DIR/. is what DIR holds.

Files that the destination has already, byte for byte, are not sent again, so a copy that was interrupted goes on where
it was when it is repeated. Modes, times and links are kept. No file is ever half there.`,
    )
    .argument("<source>", "PATH or ID:PATH")
    .argument("<destination>", "PATH or ID:PATH")
    .option("-r, --recursive", "copy directories with everything below them")
    .option("-q, --quiet", "no progress and no closing line")
    .option("--json", "print {files, bytes, skipped, problems, duration_ms} as JSON")
    .does(copyFiles);
}

async function copyFiles(call: Call<CpOptions>, source: string, destination: string): Promise<number> {
  const { config, terminal, options } = call;
  if (asSessionPath(source) === undefined && asSessionPath(destination) === undefined) {
    throw new UsageError(
      "one side of a copy is in a session: ID:PATH",
      "For instance: viv cp data.csv 4x7k2m9q0a1b2c3d4e5f6:   (ids: viv ls)",
    );
  }
  const client = await call.connect();
  const startedAt = performance.now();
  const isShown = terminal.isInteractive && config.canDraw && !options.quiet && !options.json;
  const progress = isShown ? progressLine({ terminal, now: () => performance.now() }, source) : noProgress;
  const copied = await withInterrupt(async (signal) => {
    const find = sessionFinder(client);
    const from = await sideOf({ client, find }, source, signal);
    const to = await sideOf({ client, find }, destination, signal);
    try {
      return await copy(
        { source: from.place, target: to.place, progress },
        { from: from.path, to: to.path, recursive: options.recursive ?? false },
      );
    } finally {
      progress.end();
    }
  });
  for (const problem of copied.problems) terminal.note(`viv: ${plainText(problem)}`);
  const durationMs = Math.round(performance.now() - startedAt);
  if (options.json) terminal.out(JSON.stringify({ ...copied, duration_ms: durationMs }));
  else if (!options.quiet) terminal.out(renderCopied(copied, durationMs));
  return copied.problems.length === 0 ? EXIT.ok : EXIT.failed;
}

async function sideOf(
  { client, find }: { client: Client; find: FindSession },
  text: string,
  signal: AbortSignal,
): Promise<{ place: Place; path: string }> {
  const found = asSessionPath(text);
  if (found === undefined) return { place: localPlace(signal), path: text };
  const session = client.session(await find(found.session));
  return { place: sessionPlace(session, signal), path: absolutePath(found.path) };
}

function renderCopied({ files, bytes, skipped }: Copied, durationMs: number): string {
  const count = `${files} ${files === 1 ? "file" : "files"}`;
  const same = skipped === 0 ? "" : `, ${skipped} unchanged and skipped`;
  return `${count}, ${formatBytes(bytes)} copied${same} in ${formatSeconds(durationMs)}`;
}
