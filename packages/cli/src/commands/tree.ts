import type { SessionRecord } from "@vivarium/sdk";
import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { CliError } from "../cli-error.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { buildForest, type LineageNode, treeOf } from "../lineage/forest.ts";
import { gatherLineage } from "../lineage/gather.ts";
import { paintFor } from "../print/paint.ts";
import { renderForest } from "../print/tree.ts";
import { pickSession } from "../sessions/find-session.ts";

export function treeCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("tree", ["viv tree", "viv tree 4x7k2m9q0a1b2c3d4e5f6", "viv tree --json"])
    .summary("show which session came from what")
    .description(
      `Show sessions, the checkpoints taken of them, and what was forked or started from either, as trees. The oldest comes
first. Ended sessions are shown where something of them is left.`,
    )
    .argument("[id]", "only the tree with this session (id, name, or beginning of the id) or checkpoint (id)")
    .option("--json", 'print {"roots": [{kind, session or checkpoint, children}, …]}')
    .action((reference: string | undefined, options: ConnectionOptions) =>
      run(showTree(context, reference, options)),
    );
}

async function showTree(
  context: Context,
  reference: string | undefined,
  options: ConnectionOptions,
): Promise<number> {
  const { config, terminal } = context;
  const lineage = await gatherLineage(await connect(withOptions(config, options)));
  const forest = buildForest(lineage.sessions, lineage.checkpoints);
  const roots = reference === undefined ? forest : [pick(forest, reference, lineage.sessions)];
  terminal.out(options.json ? JSON.stringify({ roots }) : renderForest(roots, new Date(), paintFor(context)));
  if (lineage.isCut) terminal.note(`viv: only the newest ${lineage.sessions.length} sessions were asked for`);
  return EXIT.ok;
}

/** Sessions that have not ended go first, as with every verb. */
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
