/** The record of a build in its folder: what was asked for, without credential and machine, and how far it came. */
import { readFile } from "node:fs/promises";
import path from "node:path";
import { BuildSpec, BuildStatus } from "@vivarium/contract/node";
import { writeDurably } from "@vivarium/kit/durable-file";
import { z } from "zod";

const KeptSpec = BuildSpec.omit({ credential: true, image: true, machine_id: true });
/** A spec as it is kept on disk. The image that it means is part of the status. */
export type KeptSpec = z.infer<typeof KeptSpec>;

const BuildRecord = z.object({ spec: KeptSpec, status: BuildStatus });
export type BuildRecord = z.infer<typeof BuildRecord>;

const fileOf = (dir: string) => path.join(dir, "build.json");

export async function writeRecord(dir: string, { spec, status }: BuildRecord): Promise<void> {
  const { progress: _, ...kept } = status;
  await writeDurably(fileOf(dir), JSON.stringify({ spec, status: kept }), 0o600);
}

/** Undefined for a folder without a whole record. */
export async function readRecord(dir: string): Promise<BuildRecord | undefined> {
  try {
    return BuildRecord.parse(JSON.parse(await readFile(fileOf(dir), "utf8")));
  } catch {
    return undefined;
  }
}
