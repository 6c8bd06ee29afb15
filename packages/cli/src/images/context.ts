/** The context of a build: a directory of this machine with a Dockerfile, which is copied into a session as it is. */
import { stat } from "node:fs/promises";
import path from "node:path";
import type { Session } from "@vivarium/sdk";
import { CliError, UsageError } from "../cli-error.ts";
import { copy } from "../copy/copy.ts";
import { localPlace } from "../copy/local-place.ts";
import type { Progress } from "../copy/progress.ts";
import { sessionPlace } from "../copy/session-place.ts";

/** Names that buildah looks for, in its order. */
const USUAL = ["Containerfile", "Dockerfile"];
const CONTEXT = "/workspace/context";
/** A Dockerfile that is outside of its context. */
const APART = "/workspace/Dockerfile";

export interface Context {
  directory: string;
  dockerfile: string;
}

/** The same, in a session. */
export type SentContext = Context;

/** `file`: the Dockerfile if it is not one of the usual names in the directory; relative to the working directory. */
export async function findContext(directory: string, file: string | undefined): Promise<Context> {
  if (!(await isThere(directory, "isDirectory"))) throw new UsageError(`${directory} is no directory`);
  const candidates = file === undefined ? USUAL.map((name) => path.join(directory, name)) : [file];
  for (const dockerfile of candidates)
    if (await isThere(dockerfile, "isFile")) return { directory, dockerfile };
  throw new UsageError(
    file === undefined ? `${directory} has no ${USUAL.toReversed().join(" or ")}` : `${file} is no file`,
    "Name the Dockerfile with --file, and the directory of what it copies: viv template build DIR",
  );
}

/** Everything is sent, ignored files too: buildah reads .dockerignore itself. */
export async function sendContext(
  session: Session,
  { directory, dockerfile }: Context,
  { progress, signal }: { progress: Progress; signal: AbortSignal },
): Promise<SentContext> {
  const target = sessionPlace(session, signal);
  const send = async (from: string, to: string) => {
    const { problems } = await copy(
      { source: localPlace(signal), target, progress },
      { from, to, recursive: true },
    );
    if (problems.length > 0) throw new CliError(`the context was not copied whole: ${problems.join("; ")}`);
  };
  await send(directory, CONTEXT);
  const within = path.relative(path.resolve(directory), path.resolve(dockerfile));
  const isInside = within !== "" && within !== ".." && !within.startsWith(`..${path.sep}`);
  if (isInside) return { directory: CONTEXT, dockerfile: `${CONTEXT}/${within.split(path.sep).join("/")}` };
  await send(dockerfile, APART);
  return { directory: CONTEXT, dockerfile: APART };
}

async function isThere(file: string, kind: "isDirectory" | "isFile"): Promise<boolean> {
  return await stat(file).then(
    (found) => found[kind](),
    () => false,
  );
}
