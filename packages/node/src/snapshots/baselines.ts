/** The baselines of this node: one snapshot per (template, size), verified once before anything is loaded from it. */
import { readdir, realpath } from "node:fs/promises";
import path from "node:path";
import type { Log } from "@vivarium/kit/log";
import type { QemuRoot } from "../host/qemu-root.ts";
import { type Loadable, readManifest, verifyLoadable } from "./manifest.ts";

export async function findBaselines(deps: {
  imagesDir: string;
  qemu: QemuRoot;
  log: Log;
}): Promise<Map<string, Loadable>> {
  const found = new Map<string, Loadable>();
  const templates = path.join(deps.imagesDir, "templates");
  for (const template of await list(templates)) {
    const version = await realpath(path.join(templates, template, "current")).catch(() => null);
    if (version === null) continue;
    for (const size of await list(version)) {
      const dir = path.join(version, size);
      const manifest = await readManifest(dir).catch(() => null);
      if (manifest === null) continue;
      try {
        await verifyLoadable({ dir, manifest }, deps.qemu);
        found.set(baselineKey(template, size), { dir, manifest });
      } catch (error) {
        deps.log.error({ template, size, reason: (error as Error).message }, "baseline refused");
      }
    }
  }
  return found;
}

export const baselineKey = (template: string, size: string) => `${template}/${size}`;

async function list(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}
