/** `viv tree`: shows sessions and checkpoints as trees of their ancestry. */
import type { SessionRecord } from "@vivarium/sdk";
import { CliError } from "../cli-error.ts";
import { buildForest, type LineageNode, treeOf } from "../lineage/forest.ts";
import { gatherLineage } from "../lineage/gather.ts";
import { renderForest } from "../print/tree.ts";
import { pickSession } from "../sessions/find-session.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

export function treeCommand(): Verb {
  return clientVerb("tree", ["viv tree", "viv tree 4x7k2m9q0a1b2c3d4e5f6", "viv tree --json"])
    .summary("show which session came from what")
    .description(
      `Show sessions, the checkpoints taken of them, and what was forked or started from either, as trees. The oldest comes
first. Ended sessions are shown where something of them is left.`,
    )
    .argument("[id]", "only the tree with this session (id, name, or beginning of the id) or checkpoint (id)")
    .option("--json", 'print {"roots": [{kind, session or checkpoint, children}, …]}')
    .does(showTree);
}

async function showTree(call: Call, reference?: string): Promise<void> {
  const lineage = await gatherLineage(await call.connect());
  const forest = buildForest(lineage.sessions, lineage.checkpoints);
  const roots = reference === undefined ? forest : [pick(forest, reference, lineage.sessions)];
  call.print({ roots }, () => renderForest(roots, new Date(), call.paint));
  if (lineage.isCut)
    call.terminal.note(`viv: only the newest ${lineage.sessions.length} sessions were asked for`);
}

/** The tree of the session that a reference means; present sessions come before ended ones. */
function pick(forest: LineageNode[], reference: string, records: SessionRecord[]): LineageNode {
  const { ended = [], present = [] } = Object.groupBy(records, ({ state }) =>
    state === "ended" ? "ended" : "present",
  );
  const meant = pickSession(reference, { sessions: present }) ?? pickSession(reference, { sessions: ended });
  const tree = treeOf(forest, meant?.session_id ?? reference);
  if (tree) return tree;
  throw new CliError(`there is no session or checkpoint "${reference}" in any tree`, {
    hint: "Names and ids are case-sensitive; all trees: viv tree. Ended sessions of which nothing is left: viv ls --state ended",
  });
}
