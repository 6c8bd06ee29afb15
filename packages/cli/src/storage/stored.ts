/** Reads what the programs of control and node say is stored, and finds the owner of a folder. */
import type { Programs } from "./programs.ts";

/** A row of control's. */
export interface Thing {
  kind: "session" | "checkpoint" | "template" | "volume" | "artifact" | "archive";
  id: string;
  org_id: string;
  name: string | null;
  state: string | null;
  session_id: string | null;
  snapshot_id: string | null;
  size_bytes: number | null;
  stored_bytes?: number;
}

export interface Things {
  things: Thing[];
  unnamed_bytes: number;
}

/** A folder on the node. */
export interface OnNode {
  kind: "snapshot" | "machine" | "volume" | "baseline";
  id: string;
}

export async function readThings(programs: Programs): Promise<Things> {
  let found: Things = { things: [], unnamed_bytes: 0 };
  await programs.control(["list"], (line: Things) => {
    found = line;
  });
  return found;
}

/** The thing that a folder on the node is of. Undefined: of none that a row names. */
export function ownerOf({ kind, id }: OnNode, things: readonly Thing[]): Thing | undefined {
  if (kind === "snapshot") return things.find(({ snapshot_id: snapshot }) => snapshot === id);
  if (kind === "volume") return things.find((thing) => thing.kind === "volume" && thing.id === id);
  // A machine is named after its session, and counts how often that was started.
  const session = id.replace(/-[0-9]+$/, "");
  if (kind === "machine") return things.find((thing) => thing.kind === "session" && thing.id === session);
  return undefined;
}
