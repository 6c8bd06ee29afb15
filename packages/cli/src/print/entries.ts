import type { Entry, Tree } from "../copy/entry.ts";
import { renderTable } from "./table.ts";

const RIGHTS = ["r", "w", "x"] as const;
const KIND_LETTERS = { file: "-", directory: "d", link: "l", other: "?" } as const;

/** Renders the entries of a directory, or the one file that was named. */
export function renderEntries(tree: Tree, root: string): string {
  const inside = [...tree].filter(([path]) => path !== "");
  const itself = tree.get("");
  const shown = itself === undefined || itself.kind === "directory" ? inside : [[root, itself] as const];
  const rows = shown
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, entry]) => [modeOf(entry), String(entry.bytes), timeOf(entry), nameOf(name, entry)]);
  return renderTable(["MODE", "BYTES", "CHANGED", "NAME"], rows);
}

function modeOf({ kind, mode }: Entry): string {
  const bits = Array.from({ length: 9 }, (_, i) => (mode & (0o400 >> i) ? RIGHTS[i % 3] : "-"));
  return `${KIND_LETTERS[kind]}${bits.join("")}`;
}

function timeOf({ modifiedAt }: Entry): string {
  return new Date(modifiedAt * 1000).toISOString().replace(".000", "");
}

function nameOf(name: string, { kind, target }: Entry): string {
  if (kind === "directory") return `${name}/`;
  return target === undefined ? name : `${name} -> ${target}`;
}
