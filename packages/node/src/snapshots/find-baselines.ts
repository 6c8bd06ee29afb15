/** Finds baselines in the folders of templates: one snapshot per template, version and size. */
import { readFile, realpath } from "node:fs/promises";
import path from "node:path";
import { TemplateOrigin } from "@vivarium/contract/api";
import type { Log } from "@vivarium/kit/log";
import { z } from "zod";
import type { QemuRoot } from "../host/qemu-root.ts";
import { assertFits } from "./fit.ts";
import { visibleFoldersIn } from "./folder.ts";
import { type Loadable, readManifest, requireLoader } from "./manifest.ts";

export interface Baseline extends Loadable {
  isCurrent: boolean;
  /** Whether it was verified since this daemon read it. Never of an older version. */
  isVerified: boolean;
  /** The origin of its template version. */
  origin: TemplateOrigin;
}

/** Baselines by `<template>@<version>/<size>`, and those of the current version also by `<template>/<size>`. */
export type BaselinesByKey = Map<string, Baseline>;

export interface FindDeps {
  imagesDir: string;
  qemu: QemuRoot;
  log: Log;
}

export async function findBaselines(deps: FindDeps): Promise<BaselinesByKey> {
  const found: BaselinesByKey = new Map();
  for (const template of await visibleFoldersIn(path.join(deps.imagesDir, "templates")))
    for (const [key, baseline] of await findBaselinesOf(deps, template)) found.set(key, baseline);
  return found;
}

export async function findBaselinesOf(deps: FindDeps, template: string): Promise<BaselinesByKey> {
  const found: BaselinesByKey = new Map();
  const folder = path.join(deps.imagesDir, "templates", template);
  const current = await realpath(path.join(folder, "current")).catch(() => null);
  for (const version of await visibleFoldersIn(folder)) {
    const dir = path.join(folder, version);
    for (const baseline of await baselinesIn(deps, dir, dir === current)) {
      const { size } = baseline.manifest;
      found.set(baselineKey(`${template}@${version}`, size), baseline);
      if (dir === current) found.set(baselineKey(template, size), baseline);
    }
  }
  return found;
}

async function baselinesIn(
  { qemu, log }: FindDeps,
  version: string,
  isCurrent: boolean,
): Promise<Baseline[]> {
  const found: Baseline[] = [];
  const origin = await readOrigin(version).catch((error: Error) => {
    log.warn({ dir: version, reason: error.message }, "what a template was made of cannot be told");
    return {};
  });
  for (const size of await visibleFoldersIn(version)) {
    const dir = path.join(version, size);
    const manifest = await readManifest(dir).catch(() => null);
    if (manifest === null) continue;
    try {
      assertFits(manifest);
      if (isCurrent) requireLoader(qemu, manifest);
      found.push({ dir, manifest, isCurrent, isVerified: false, origin });
    } catch (error) {
      logRefused(log, dir, error as Error);
    }
  }
  return found;
}

export function logRefused(log: Log, dir: string, { message }: Error): void {
  log.error({ dir, reason: message }, "baseline refused; bake it again");
}

export const baselineKey = (template: string, size: string) => `${template}/${size}`;

const Origin = TemplateOrigin.extend({
  built_at: z.iso
    .datetime()
    .transform((at) => new Date(at).toISOString())
    .optional(),
});

/**
 * The origin of a template version, as set-up wrote it beside the disk. Absent fields stay absent, and so does an
 * unreadable file: a template can be used without an origin.
 */
export async function readOrigin(versionDir: string): Promise<TemplateOrigin> {
  const text = await readFile(path.join(versionDir, "template.json"), "utf8").catch(() => "{}");
  return Origin.parse(JSON.parse(text));
}
