/** Says what contract/node says of a snapshot. */
import { stat } from "node:fs/promises";
import type { SnapshotStatus } from "@vivarium/contract/node";
import { baselineAmong, idOfBaseline, isBaselineId, keyOfBaseline } from "./baseline-id.ts";
import type { Baselines } from "./baselines.ts";
import type { Loadable, Manifest } from "./manifest.ts";
import type { SnapshotTable } from "./table.ts";

const BLOCK_BYTES = 512;

export interface Described {
  baselines: Pick<Baselines, "get" | "find">;
  snapshots: Pick<SnapshotTable, "idOf" | "ofOtherNodes" | "list">;
}

export async function listSnapshots(deps: Described): Promise<SnapshotStatus[]> {
  const found = await deps.snapshots.list();
  const known = new Map<string, Promise<Loadable | undefined>>();
  const others = found.filter(({ manifest }) => manifest.kind === "baseline");
  const statuses = found.map(async (each) => {
    const key = keyOfBaseline(each.manifest);
    const own = known.get(key) ?? findOwn(deps, each.manifest);
    known.set(key, own);
    return await statusOf(deps, each, [await own, ...others]);
  });
  return await Promise.all(statuses);
}

/** Also of a baseline of this node. */
export async function describeSnapshot(deps: Described, found: Loadable): Promise<SnapshotStatus> {
  const own = await findOwn(deps, found.manifest);
  return await statusOf(deps, found, [own, ...(await deps.snapshots.ofOtherNodes())]);
}

async function findOwn({ baselines }: Described, manifest: Manifest): Promise<Loadable | undefined> {
  const key = keyOfBaseline(manifest);
  // A baseline that is not known is looked for among the builds alone: all manifests of the images are read again.
  return key.includes("@") ? baselines.get(key) : await baselines.find(key).catch(() => undefined);
}

async function statusOf(
  { snapshots }: Described,
  found: Loadable,
  baselines: readonly (Loadable | undefined)[],
): Promise<SnapshotStatus> {
  const { dir, manifest } = found;
  const { spec } = manifest;
  // It may be removed meanwhile.
  const folder = await stat(dir).catch(() => undefined);
  return {
    snapshot_id: snapshots.idOf(dir) ?? idOfBaseline(manifest),
    state: "ready",
    template: manifest.template,
    size: manifest.size,
    bytes: manifest.kind === "baseline" ? allBytes(manifest) : manifest.own_bytes,
    created_at: manifest.created_at,
    timings: manifest.timings,
    // The machine that was captured with `after: "hold"`.
    machine_id: spec && "machine_id" in spec && spec.after === "hold" ? spec.machine_id : undefined,
    memory: manifest.memory,
    sealed: manifest.sealed && true,
    used_at: folder?.mtime.toISOString(),
    baseline_id: manifest.kind === "baseline" ? undefined : baselineAmong(found, baselines),
  };
}

const allBytes = ({ files }: Manifest) =>
  Object.values(files).reduce((sum, entry) => sum + (entry?.blocks ?? 0) * BLOCK_BYTES, 0);

/** The snapshot or the baseline that has this id, if it is here. */
export async function findState(
  { baselines, snapshots }: { baselines: Pick<Baselines, "withId">; snapshots: Pick<SnapshotTable, "get"> },
  id: string,
): Promise<Loadable | undefined> {
  return (await snapshots.get(id)) ?? (isBaselineId(id) ? await baselines.withId(id) : undefined);
}
