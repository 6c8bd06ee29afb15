/** `viv artifacts capture`: copies files out of a session into an artifact. */
import { renderArtifact } from "../../print/artifact.ts";
import { withInterrupt } from "../../service/interrupt.ts";
import { type Call, sessionVerb, type Verb } from "../verb.ts";

interface CaptureOptions {
  wait: boolean;
}

export function artifactsCaptureCommand(): Verb {
  return sessionVerb("capture", [
    "viv artifacts capture 4x7k2m9q0a1b2c3d4e5f6 results '*.log'",
    "viv artifacts get $(viv artifacts capture 4x7k2m9q0a1b2c3d4e5f6 results)",
  ])
    .argument("<path...>", "files, directories or globs (*, ?, [..], **) below /workspace")
    .summary("copy files out of a session into an artifact")
    .description(
      `Copy files out of a session into an artifact, which outlives it. A paused session is woken. Waits until the files are
copied, and prints the artifact's id.`,
    )
    .option("--no-wait", "return while the files are being copied")
    .option("--json", "print the manifest as JSON")
    .does(captureArtifact);
}

async function captureArtifact(
  call: Call<CaptureOptions>,
  reference: string,
  paths: string[],
): Promise<void> {
  const { client, session } = await call.find(reference);
  const artifact = await withInterrupt(async (signal) => {
    const pending = await session.artifacts.capture(paths, { signal });
    return call.options.wait ? await client.artifacts.waitUntilReady(pending.id, { signal }) : pending;
  });
  call.print(artifact, renderArtifact, ({ id }) => id);
}
