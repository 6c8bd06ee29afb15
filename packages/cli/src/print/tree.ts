import { idOfNode, type LineageNode } from "../lineage/forest.ts";
import { formatBytes } from "./bytes.ts";
import { noPaint, type Paint, paintState } from "./paint.ts";
import { detailOf } from "./session.ts";
import { renderTable, withoutEmptyColumns } from "./table.ts";
import { formatAge } from "./time.ts";

const HEADINGS = ["ID", "KIND", "STATE", "SIZE", "AGE", "NAME", "DETAIL"];
const KINDS = { create: "session", fork: "fork", checkpoint: "start" } as const;

interface Line {
  /** Branch characters before the id. */
  branch: string;
  node: LineageNode;
}

/** Renders trees with one line per node: branches and id on the left, state and details on the right. */
export function renderForest(roots: LineageNode[], now: Date, paint: Paint = noPaint): string {
  if (roots.length === 0) return "No sessions and no checkpoints. Create a session with: viv create";
  const lines = roots.flatMap((root) => [{ branch: "", node: root }, ...branches(root, "")]);
  const rows = lines.map(({ branch, node }) => [branch + idOfNode(node), ...describe(node, now)]);
  const columns = withoutEmptyColumns(HEADINGS, rows, HEADINGS.indexOf("NAME"));
  return renderTable(...columns, (padded, { row, heading }) => {
    const line = lines[row - 1];
    if (line === undefined) return paint("dim", padded);
    return paintCell(paint, line, heading, padded);
  });
}

function branches(parent: LineageNode, indent: string): Line[] {
  return parent.children.flatMap((node, i) => {
    const isLast = i === parent.children.length - 1;
    return [
      { branch: `${indent}${isLast ? "└─ " : "├─ "}`, node },
      ...branches(node, `${indent}${isLast ? "   " : "│  "}`),
    ];
  });
}

function describe(node: LineageNode, now: Date): string[] {
  const age = (createdAt: string) => formatAge(now.getTime() - Date.parse(createdAt));
  if (node.kind === "gone") {
    return [node.id.startsWith("chk_") ? "checkpoint" : "session", "gone", "", "", "", ""];
  }
  if (node.kind === "checkpoint") {
    const { size_bytes, created_at, name } = node.checkpoint;
    return ["checkpoint", "", formatBytes(size_bytes), age(created_at), name ?? "", ""];
  }
  const { session, origin } = node;
  const { state, size, created_at, name } = session;
  return [KINDS[origin], state, size, age(created_at), name ?? "", detailOf(session, now)];
}

function paintCell(paint: Paint, { branch, node }: Line, heading: string, padded: string): string {
  if (heading === "STATE" && node.kind === "session") return paintState(paint, node.session.state, padded);
  if (node.kind === "gone") return paint("dim", padded);
  if (heading !== "ID") return padded;
  const id = padded.slice(branch.length);
  const lines = branch === "" ? "" : paint("dim", branch);
  return lines + (node.kind === "checkpoint" ? paint("magenta", id) : id);
}
