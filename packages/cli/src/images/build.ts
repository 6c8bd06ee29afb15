/** Has a session of the template `image-builder` build an image with buildah, and write it as an OCI layout. */
import type { ExecEvent, Session } from "@vivarium/sdk";
import { CliError } from "../cli-error.ts";
import { exitCodeOf, showStream } from "../service/show-stream.ts";
import type { Terminal } from "../terminal.ts";
import type { SentContext } from "./context.ts";

export const IMAGE_BUILDER = "image-builder";
const IMAGE = "localhost/built";
/** Directory of the layout, below /workspace. */
export const LAYOUT = "image";

export interface BuildArguments {
  buildArg?: Record<string, string>;
  target?: string;
  /** Limit of the whole build, and of writing what it made. */
  timeout: number;
}

/** Output of the build goes to stderr as it comes: the result alone is for stdout. */
export async function buildImage(
  { terminal, signal }: { terminal: Terminal; signal: AbortSignal },
  session: Session,
  { context, options }: { context: SentContext; options: BuildArguments },
): Promise<void> {
  const run = async (command: string[], what: string) => {
    const events = session.execStream({ command, timeout_ms: options.timeout }, { signal });
    const code = exitCodeOf(terminal, await showStream(terminal, toStderr(events)));
    if (code !== 0) throw new CliError(`${what} failed: buildah exited with ${code}`, { exitCode: code });
  };
  await run(buildCommand(context, options), "the build");
  await run(["sh", "-c", WRITE, "sh", IMAGE, LAYOUT], "writing the image");
}

export function buildCommand(
  { directory, dockerfile }: SentContext,
  { buildArg = {}, target }: BuildArguments,
): string[] {
  return [
    // Programs of the build run beside each other's namespaces in a chroot: the machine around them isolates.
    ...["sudo", "-n", "buildah", "build", "--isolation", "chroot", "--format", "oci"],
    ...Object.entries(buildArg).flatMap(([name, value]) => ["--build-arg", `${name}=${value}`]),
    ...(target === undefined ? [] : ["--target", target]),
    ...["--tag", IMAGE, "--file", dockerfile, directory],
  ];
}

/** The files API reads with the rights of the user, and the builder writes with those of root. */
const WRITE = `cd /workspace && rm -rf "$2" && sudo -n buildah push --quiet "$1" "oci:/workspace/$2:latest" &&
  sudo -n chmod -R a+rX "$2"`;

async function* toStderr(events: AsyncIterable<ExecEvent>): AsyncGenerator<ExecEvent> {
  for await (const event of events) yield event.type === "stdout" ? { ...event, type: "stderr" } : event;
}
