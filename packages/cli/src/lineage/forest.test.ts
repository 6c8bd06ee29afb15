import type { Checkpoint, SessionRecord } from "@vivarium/sdk";
import { expect, test } from "vitest";
import { buildForest, idOfNode, type LineageNode, missingParents, treeOf } from "./forest.ts";

const minute = (n: number) => new Date(Date.UTC(2027, 0, 1, 0, n)).toISOString();

function session(id: string, at: number, facts: Partial<SessionRecord> = {}): SessionRecord {
  const base = { state: "live" as const, size: "small", vcpus: 1, mem_mb: 1024, last_active_at: minute(at) };
  return { session_id: id, created_at: minute(at), ...base, ...facts };
}

function checkpoint(id: string, of: string, at: number): Checkpoint {
  return { checkpoint_id: id, parent_session_id: of, session_id: of, size_bytes: 1, created_at: minute(at) };
}

/** `a(b c(d))` */
function shape(nodes: LineageNode[]): string {
  const one = (node: LineageNode) =>
    idOfNode(node) + (node.children.length > 0 ? `(${shape(node.children)})` : "");
  return nodes.map(one).join(" ");
}

test("forks hang under their parent, starts under their checkpoint, checkpoints under their session, oldest first", () => {
  const sessions = [
    session("later", 9),
    session("fork2", 4, { parent_session_id: "root" }),
    session("started", 5, { from_checkpoint: "chk_a" }),
    session("fork1", 2, { parent_session_id: "root" }),
    session("root", 0),
  ];
  const forest = buildForest(sessions, [checkpoint("chk_a", "root", 3), checkpoint("chk_b", "fork1", 6)]);
  expect(shape(forest)).toBe("root(fork1(chk_b) chk_a(started) fork2) later");
  expect(forest[0]?.children.map((node) => node.kind === "session" && node.origin)).toEqual([
    "fork",
    false,
    "fork",
  ]);
});

test("a session that names both its checkpoint and the session behind it hangs under the checkpoint", () => {
  const started = session("started", 2, { from_checkpoint: "chk_a", parent_session_id: "root" });
  const forest = buildForest([session("root", 0), started], [checkpoint("chk_a", "root", 1)]);
  expect(shape(forest)).toBe("root(chk_a(started))");
});

test("a parent without a record keeps its children together", () => {
  const sessions = [
    session("a", 1, { parent_session_id: "lost" }),
    session("b", 3, { parent_session_id: "lost" }),
    session("c", 2, { from_checkpoint: "chk_lost" }),
  ];
  expect(missingParents(sessions, [])).toEqual(["lost", "chk_lost"]);
  expect(shape(buildForest(sessions, []))).toBe("lost(a b) chk_lost(c)");
});

test("the tree of an id is the whole tree around it", () => {
  const sessions = [session("x", 0), session("root", 1), session("f", 2, { parent_session_id: "root" })];
  const forest = buildForest(sessions, []);
  expect(treeOf(forest, "f")).toBe(forest[1]);
  expect(treeOf(forest, "nobody")).toBeUndefined();
});
