/**
 * Builds the trees of sessions, their checkpoints, and the sessions forked or started from either. A record names only
 * its parent, and the parent's record may be missing.
 */
import type { Checkpoint, SessionRecord } from "@vivarium/sdk";

export type LineageNode = { children: LineageNode[] } & (
  | { kind: "session"; origin: Origin; session: SessionRecord }
  | { kind: "checkpoint"; checkpoint: Checkpoint }
  /** An ancestor whose record was not found: deleted, or beyond the records that were read. */
  | { kind: "gone"; id: string }
);

/** How a session began. */
type Origin = "create" | "fork" | "checkpoint";

/** Ids that records name as parents and that have no record themselves. */
export function missingParents(sessions: SessionRecord[], checkpoints: Checkpoint[]): string[] {
  const known = new Set([...sessions.map(idOf), ...checkpoints.map(idOf)]);
  const named = [...sessions, ...checkpoints].map(parentOf).filter((id) => id !== undefined);
  return [...new Set(named)].filter((id) => !known.has(id));
}

/** The trees, oldest first on every level. Each record is in exactly one tree. */
export function buildForest(sessions: SessionRecord[], checkpoints: Checkpoint[]): LineageNode[] {
  const records = [...sessions, ...checkpoints].sort(byAge);
  const nodes = new Map<string, LineageNode>(records.map((record) => [idOf(record), toNode(record)]));
  for (const id of missingParents(sessions, checkpoints)) nodes.set(id, { kind: "gone", id, children: [] });
  const roots: LineageNode[] = [];
  for (const record of records) {
    const node = nodes.get(idOf(record)) as LineageNode;
    const parentId = parentOf(record);
    const parent = parentId === undefined ? undefined : nodes.get(parentId);
    if (parent === undefined) roots.push(node);
    // A missing ancestor is listed where its oldest child would be.
    else if (parent.kind === "gone" && parent.children.length === 0) roots.push(parent);
    parent?.children.push(node);
  }
  return roots;
}

export function idOfNode(node: LineageNode): string {
  if (node.kind === "gone") return node.id;
  return idOf(node.kind === "session" ? node.session : node.checkpoint);
}

/** The tree that contains an id. */
export function treeOf(roots: LineageNode[], id: string): LineageNode | undefined {
  const holds = (node: LineageNode): boolean => idOfNode(node) === id || node.children.some(holds);
  return roots.find(holds);
}

function toNode(record: SessionRecord | Checkpoint): LineageNode {
  if (isCheckpoint(record)) return { kind: "checkpoint", checkpoint: record, children: [] };
  return { kind: "session", origin: originOf(record), session: record, children: [] };
}

function originOf(session: SessionRecord): Origin {
  if (session.from_checkpoint !== undefined) return "checkpoint";
  return session.parent_session_id === undefined ? "create" : "fork";
}

function parentOf(record: SessionRecord | Checkpoint): string | undefined {
  return isCheckpoint(record)
    ? record.parent_session_id
    : (record.from_checkpoint ?? record.parent_session_id);
}

function idOf(record: SessionRecord | Checkpoint): string {
  return isCheckpoint(record) ? record.checkpoint_id : record.session_id;
}

function isCheckpoint(record: SessionRecord | Checkpoint): record is Checkpoint {
  return "checkpoint_id" in record;
}

/** Oldest first; the id decides within the same millisecond, so that the order never changes. */
function byAge(a: SessionRecord | Checkpoint, b: SessionRecord | Checkpoint): number {
  return Date.parse(a.created_at) - Date.parse(b.created_at) || (idOf(a) < idOf(b) ? -1 : 1);
}
