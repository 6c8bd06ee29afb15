/** `viv artifacts get`: downloads the files of an artifact. */
import { noProgress, progressLine } from "../../copy/progress.ts";
import { formatBytes } from "../../print/bytes.ts";
import { formatSeconds } from "../../print/time.ts";
import { withInterrupt } from "../../service/interrupt.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";
import { type Saved, saveArtifact } from "./save-artifact.ts";

interface GetOptions {
  quiet?: boolean;
}

export function artifactsGetCommand(): Verb {
  return clientVerb("get", [
    "viv artifacts get art_4x7k2m9q0a1b2c3d4e5f6",
    "viv artifacts get art_4x7k2m9q0a1b2c3d4e5f6 ./results",
  ])
    .argument("<artifact>", "id of the artifact")
    .argument("[directory]", "where its files go, under their paths (default: the present directory)")
    .summary("download the files of an artifact")
    .description(
      `Download the files of an artifact. Waits for one that is still being captured. A download that was interrupted goes
on where it was when it is repeated, and files that are there whole are not sent again.`,
    )
    .option("-q, --quiet", "no progress and no closing line")
    .option("--json", "print {files, bytes, skipped, duration_ms} as JSON")
    .does(getArtifact);
}

async function getArtifact(call: Call<GetOptions>, id: string, directory = "."): Promise<void> {
  const { config, terminal, options } = call;
  const { artifacts } = await call.connect();
  const startedAt = performance.now();
  const isShown = terminal.isInteractive && config.canDraw && !options.quiet && !options.json;
  const progress = isShown ? progressLine({ terminal, now: () => performance.now() }, id) : noProgress;
  const saved = await withInterrupt(async (signal) => {
    try {
      const artifact = await artifacts.waitUntilReady(id, { signal });
      return await saveArtifact({ artifacts, progress, signal }, artifact, directory);
    } finally {
      progress.end();
    }
  });
  const durationMs = Math.round(performance.now() - startedAt);
  if (options.json) terminal.out(JSON.stringify({ ...saved, duration_ms: durationMs }));
  else if (!options.quiet) terminal.out(renderSaved(saved, durationMs));
}

function renderSaved({ files, bytes, skipped }: Saved, durationMs: number): string {
  const count = `${files} ${files === 1 ? "file" : "files"}`;
  const same = skipped === 0 ? "" : `, ${skipped} there already`;
  return `${count}, ${formatBytes(bytes)} downloaded${same} in ${formatSeconds(durationMs)}`;
}
