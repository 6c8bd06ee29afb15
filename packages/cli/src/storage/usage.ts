/** Adds up how much is taken by what: of each session, checkpoint, template, volume and artifact, and of what no row names. */
import { statfs } from "node:fs/promises";
import path from "node:path";
import type { Context } from "../context.ts";
import { withPrograms } from "./programs.ts";
import { type OnNode, ownerOf, readThings, type Thing } from "./stored.ts";

export interface Taken {
  /** `unnamed`: a folder on the node that no row of the database names. */
  kind: Thing["kind"] | "baseline" | "unnamed";
  id: string;
  name: string | null;
  org_id: string | null;
  session_id: string | null;
  state: string | null;
  /** Bytes on disk. */
  bytes: number;
  /** Those of them that others have, too: what is deleted frees only the rest. */
  shared_bytes: number;
}

export interface Usage {
  /** The file system of the pool. */
  disk: { bytes: number; free_bytes: number };
  stored: Taken[];
  /** Objects that no row names any more; they are removed after a day. */
  unnamed_object_bytes: number;
}

type Line = { stored: OnNode & { bytes: number; shared_bytes: number } };

export async function readUsage(context: Context, signal: AbortSignal): Promise<Usage> {
  return await withPrograms(context, { command: "viv storage", signal }, async (programs) => {
    const onNode: Line["stored"][] = [];
    await programs.node(["list"], ({ stored }: Line) => void onNode.push(stored));
    // The rows are read last: what was made meanwhile is in no folder yet, and has no bytes.
    const { things, unnamed_bytes } = await readThings(programs);
    const { blocks, bavail, bsize } = await statfs(path.join(context.config.dataDir, "pool"));
    return {
      disk: { bytes: blocks * bsize, free_bytes: bavail * bsize },
      stored: addUp(things, onNode),
      unnamed_object_bytes: unnamed_bytes,
    };
  });
}

/** A session has the folders of its machines, and its saved state while it is paused. */
export function addUp(things: readonly Thing[], onNode: readonly Line["stored"][]): Taken[] {
  const taken = new Map(things.map((thing) => [thing, takenBy(thing)]));
  const others: Taken[] = [];
  for (const folder of onNode) {
    const owner = ownerOf(folder, things);
    const of = owner && taken.get(owner);
    if (of) {
      of.bytes += folder.bytes;
      of.shared_bytes += folder.shared_bytes;
    } else others.push(takenByNobody(folder));
  }
  return [...taken.values(), ...others];
}

const takenBy = ({ kind, id, name, org_id, session_id, state, stored_bytes: bytes = 0 }: Thing): Taken => ({
  ...{ kind, id, name, org_id, session_id, state },
  bytes,
  shared_bytes: 0,
});

const takenByNobody = ({ kind, id, bytes, shared_bytes }: Line["stored"]): Taken => ({
  ...{ kind: kind === "baseline" ? kind : "unnamed", id, name: null, org_id: null, session_id: null },
  ...{ state: kind === "baseline" ? null : kind, bytes, shared_bytes },
});
