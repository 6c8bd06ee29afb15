/**
 * The baselines of this node: one snapshot per template, version and size. The current version of each template is
 * verified once, when the daemon starts; older ones, which few ask for, whenever they are loaded.
 */
import { readdir, realpath } from "node:fs/promises";
import path from "node:path";
import type { Log } from "@vivarium/kit/log";
import type { QemuRoot } from "../host/qemu-root.ts";
import { type Loadable, readManifest, verifyLoadable } from "./manifest.ts";

export interface Baseline extends Loadable {
  isVerified: boolean;
}

/** By `<template>/<size>` for the current version, and by `<template>@<version>/<size>` for every one. */
export type Baselines = Map<string, Baseline>;

export async function findBaselines(deps: {
  imagesDir: string;
  qemu: QemuRoot;
  log: Log;
}): Promise<Baselines> {
  const found: Baselines = new Map();
  const templates = path.join(deps.imagesDir, "templates");
  for (const template of await list(templates)) {
    const current = await realpath(path.join(templates, template, "current")).catch(() => null);
    for (const version of await list(path.join(templates, template))) {
      const dir = path.join(templates, template, version);
      for (const baseline of await baselinesIn(deps, dir, dir === current)) {
        const { size } = baseline.manifest;
        found.set(baselineKey(`${template}@${version}`, size), baseline);
        if (dir === current) found.set(baselineKey(template, size), baseline);
      }
    }
  }
  return found;
}

async function baselinesIn(
  { qemu, log }: { qemu: QemuRoot; log: Log },
  version: string,
  isCurrent: boolean,
): Promise<Baseline[]> {
  const found: Baseline[] = [];
  for (const size of await list(version)) {
    const dir = path.join(version, size);
    const manifest = await readManifest(dir).catch(() => null);
    if (manifest === null) continue;
    try {
      if (isCurrent) await verifyLoadable({ dir, manifest }, qemu);
      found.push({ dir, manifest, isVerified: isCurrent });
    } catch (error) {
      log.error({ dir, reason: (error as Error).message }, "baseline refused; bake it again");
    }
  }
  return found;
}

/** Each baseline once. */
export function distinct(baselines: Baselines): Baseline[] {
  return [...new Set(baselines.values())];
}

export const baselineKey = (template: string, size: string) => `${template}/${size}`;

async function list(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}
