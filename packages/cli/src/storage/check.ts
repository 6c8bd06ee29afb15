/** Reads everything that is stored back against its sums: saved states, baselines and volumes of the node, then artifacts and archives. */
import type { Context } from "../context.ts";
import type { Progress } from "../copy/progress.ts";
import { type Programs, withPrograms } from "./programs.ts";
import { type OnNode, ownerOf, readThings, type Thing } from "./stored.ts";

export interface Damaged {
  kind: Exclude<OnNode["kind"], "machine"> | "artifact" | "archive";
  id: string;
  damages: string[];
  /** The owner. Absent where no row names the damaged one. */
  of?: Pick<Thing, "kind" | "id" | "name" | "org_id" | "session_id">;
}

export interface Checked {
  ok: boolean;
  checked: Record<Damaged["kind"], number>;
  bytes: number;
  damaged: Damaged[];
}

type Line =
  | { expect: number }
  | { read: number }
  | { checked: { kind: Damaged["kind"]; id: string; damages: string[] } };

interface CheckOptions {
  bytesPerSecond: number;
  progress: Progress;
  signal: AbortSignal;
}

export async function checkStorage(
  context: Context,
  { bytesPerSecond, progress, signal }: CheckOptions,
): Promise<Checked> {
  return await withPrograms(context, { command: "viv storage check", signal }, async (programs) => {
    const result = { checked: { snapshot: 0, volume: 0, baseline: 0, artifact: 0, archive: 0 }, bytes: 0 };
    const found: Omit<Damaged, "of">[] = [];
    for (const name of ["node", "control"] as const) {
      let read = 0;
      const note = (bytes: number) => {
        progress.moved(bytes - read);
        result.bytes += bytes - read;
        read = bytes;
      };
      await programs[name](["check", "--rate", String(bytesPerSecond)], (line: Line) => {
        if ("expect" in line) progress.expect(line.expect, 0);
        else if ("read" in line) note(line.read);
        else {
          result.checked[line.checked.kind]++;
          if (line.checked.damages.length > 0) found.push(line.checked);
        }
      });
    }
    const damaged = await withOwners(programs, found);
    return { ok: damaged.length === 0, ...result, damaged };
  });
}

/** The rows are read last: they do not name what was deleted meanwhile. */
async function withOwners(programs: Programs, found: Omit<Damaged, "of">[]): Promise<Damaged[]> {
  if (found.length === 0) return [];
  const { things } = await readThings(programs);
  return found.map(({ kind, id, damages }) => {
    const owner =
      kind === "artifact" || kind === "archive"
        ? things.find((thing) => thing.kind === kind && thing.id === id)
        : ownerOf({ kind, id }, things);
    if (!owner) return { kind, id, damages };
    const { kind: of, id: ownerId, name, org_id, session_id } = owner;
    return { kind, id, damages, of: { kind: of, id: ownerId, name, org_id, session_id } };
  });
}
