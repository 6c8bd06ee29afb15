/**
 * The id of a baseline, by which another node knows it from its own bake of the same template: a digest of what the baseline
 * consists of. It has the form of a snapshot's id, because a baseline of another node is one here.
 */
import { createHash } from "node:crypto";
import { BuildId } from "@vivarium/contract/node";
import { type Loadable, type Manifest, SNAPSHOT_FILES } from "./manifest.ts";

const PREFIX = "bas_";
const DIGITS = 21;
const BASE_36 = 36;

/** It is the same for a copy of its files, whose times and blocks are others. */
export function idOfBaseline({ template, version, size, created_at, files }: Manifest): string {
  const sums = SNAPSHOT_FILES.map((name) => [
    name,
    files[name]?.bytes,
    files[name]?.sha256,
    files[name]?.crc32,
  ]);
  const text = JSON.stringify([template, version, size, created_at, sums]);
  const digest = createHash("sha256").update(text).digest("hex");
  return PREFIX + BigInt(`0x${digest}`).toString(BASE_36).slice(0, DIGITS);
}

export const isBaselineId = (id: string) => id.startsWith(PREFIX);

/** The baseline's key of the template, version and size that a state was made with. */
export function keyOfBaseline({ template, version, size }: Manifest): string {
  return BuildId.safeParse(template).success ? `${template}/${size}` : `${template}@${version}/${size}`;
}

/**
 * Whether a state was made from this baseline. States share the base disk of theirs, with its time, and another bake has
 * another one, or has made it anew.
 */
function isMadeFrom(manifest: Manifest, baseline: Manifest): boolean {
  const disk = manifest.files["base.raw"];
  const theirs = baseline.files["base.raw"];
  const isSameDisk = disk?.mtime === theirs?.mtime && disk?.bytes === theirs?.bytes;
  return baseline.kind === "baseline" && keyOfBaseline(manifest) === keyOfBaseline(baseline) && isSameDisk;
}

export function baselineAmong(
  { manifest }: Loadable,
  baselines: readonly (Loadable | undefined)[],
): string | undefined {
  const found = baselines.find((one) => one && isMadeFrom(manifest, one.manifest));
  return found && idOfBaseline(found.manifest);
}
