/**
 * Adds the archive of a saved state, which a job packs later: one of the object store in the transaction in which the state gets its
 * owner, one of the warm tier when the disk is nearly full. Archives of one session share a space, and differ from what
 * the session was made from.
 */
import type { SnapshotStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import type { Queries } from "../db/pool.ts";
import { newDataKey } from "../secrets/data-key.ts";
import type { Kek } from "../secrets/kek-text.ts";
import type { Keyring } from "../secrets/keyring.ts";
import { type Archive, findArchiveOf, findSpace, setBase, takeArchive, takeSpace } from "./store.ts";

/** Owner of the space of baselines, and the organisation that its objects are below. */
const BASELINES = "baselines";
const SERVICE = "service";
/** Most bases below an archive: all of them are fetched for it. */
const MOST_DEPTH = 3;

interface AddDeps {
  keyring: Keyring;
  /** Whether saved states are kept in the object store. */
  hasArchives: boolean;
}

interface Saved {
  kind: "pause" | "checkpoint" | "template";
  session: { id: string; org_id: string; project_id: string | null; origin_snapshot_id: string | null };
  snapshot: Pick<SnapshotStatus, "snapshot_id" | "baseline_id">;
}

/** The snapshot's archive. Undefined if the service keeps none. One that is there stays as it is. */
export async function addArchive(
  { keyring, hasArchives }: AddDeps,
  tx: Queries,
  { kind, session, snapshot }: Saved,
): Promise<Archive | undefined> {
  const kek = keyring.current;
  if (!hasArchives || !kek) return undefined;
  return await add({ kek, isLocal: false }, tx, { kind, session, snapshot });
}

/** As `addArchive`, of the warm tier. Undefined without a key-encryption key, or if the state would be packed whole. */
export async function addLocalArchive(
  { keyring }: Pick<AddDeps, "keyring">,
  tx: Queries,
  saved: Saved,
): Promise<Archive | undefined> {
  const kek = keyring.current;
  const baseline = saved.snapshot.baseline_id;
  if (!kek || baseline === undefined) return undefined;
  const adding = { kek, isLocal: true };
  return (await baseOf(adding, tx, null, baseline)) && (await add(adding, tx, saved));
}

/** How and where archives are added. */
interface Adding {
  kek: Kek;
  /** In the warm tier. */
  isLocal: boolean;
}

async function add(adding: Adding, tx: Queries, { kind, session, snapshot }: Saved): Promise<Archive> {
  const known = await findArchiveOf(tx, snapshot.snapshot_id);
  if (known) return known;
  const base = await baseOf(adding, tx, session.origin_snapshot_id, snapshot.baseline_id);
  return await insert(adding, tx, {
    ...{ org_id: session.org_id, project_id: session.project_id, kind, session_id: session.id },
    ...{ owner: session.id, snapshot_id: snapshot.snapshot_id },
    ...{ baseline_id: snapshot.baseline_id ?? null, base },
  });
}

/**
 * Gives an archive another base, because the node does not have that one any more: the baseline, or else nothing, so that the
 * state is packed whole.
 */
export async function changeBase(
  { keyring }: Pick<AddDeps, "keyring">,
  tx: Queries,
  { id, space_id, base_archive: was, baseline_id: baseline }: Archive,
): Promise<void> {
  const kek = keyring.current;
  const isLocal = (await findSpace(tx, space_id))?.is_local ?? false;
  const found = kek && baseline !== null ? await baseOf({ kek, isLocal }, tx, null, baseline) : undefined;
  const base = found?.id === was ? undefined : found;
  await setBase(tx, id, { base_archive: base?.id ?? null, depth: base ? base.depth + 1 : 0 });
}

async function baseOf(
  adding: Adding,
  tx: Queries,
  origin: string | null,
  baseline: string | undefined,
): Promise<Archive | undefined> {
  const made = origin === null ? undefined : await findArchiveOf(tx, origin);
  if (made && made.state !== "failed" && made.depth < MOST_DEPTH && (await fits(adding, tx, made)))
    return made;
  if (baseline === undefined) return undefined;
  const known = await findArchiveOf(tx, baseline);
  if (known) return (await fits(adding, tx, known)) ? known : undefined;
  return await insert(adding, tx, {
    ...{ org_id: SERVICE, project_id: null, kind: "baseline", session_id: null },
    ...{ owner: BASELINES, snapshot_id: baseline, baseline_id: null, base: undefined },
  });
}

/** A base of the other tier could be out of reach: it is on this host alone, or in a bucket that the service had before. */
async function fits({ isLocal }: Adding, tx: Queries, base: Archive): Promise<boolean> {
  return (await findSpace(tx, base.space_id))?.is_local === isLocal;
}

interface Wanted
  extends Pick<Archive, "org_id" | "project_id" | "kind" | "session_id" | "snapshot_id" | "baseline_id"> {
  owner: string;
  base: Archive | undefined;
}

async function insert(
  { kek, isLocal }: Adding,
  tx: Queries,
  { owner, base, ...wanted }: Wanted,
): Promise<Archive> {
  const place = { org_id: wanted.org_id, id: `spc_${randomId()}` };
  const space = await takeSpace(tx, {
    ...place,
    owner: isLocal ? `local:${owner}` : owner,
    is_local: isLocal,
    ...newDataKey(kek, place).wrapped,
  });
  const own = { org_id: wanted.org_id, id: `arc_${randomId()}` };
  return await takeArchive(tx, {
    ...wanted,
    ...own,
    ...newDataKey(kek, own).wrapped,
    space_id: space.id,
    base_archive: base?.id ?? null,
    depth: base ? base.depth + 1 : 0,
  });
}
