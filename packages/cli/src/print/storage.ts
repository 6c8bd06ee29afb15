/** Renders what is stored, and what a check of it found. */
import type { Checked, Damaged } from "../storage/check.ts";
import type { Taken, Usage } from "../storage/usage.ts";
import { formatBytes } from "./bytes.ts";
import { plainText, renderTable, withoutEmptyColumns } from "./table.ts";

const WORDS = {
  snapshot: "saved state",
  volume: "volume",
  baseline: "baseline",
  artifact: "artifact",
  archive: "archive",
} as const;

export function renderChecked({ checked, bytes, damaged }: Checked): string {
  const counts = (["snapshot", "baseline", "volume", "artifact", "archive"] as const)
    .map((kind) => `${checked[kind]} ${WORDS[kind]}${checked[kind] === 1 ? "" : "s"}`)
    .join(", ");
  const verdict = damaged.length === 0 ? "nothing is damaged" : `${damaged.length} damaged`;
  return [...damaged.flatMap(linesOf), `${counts} read (${formatBytes(bytes)}): ${verdict}`].join("\n");
}

function linesOf({ kind, id, damages, of }: Damaged): string[] {
  return [
    plainText(`damaged: ${WORDS[kind]} ${id}${ownerOf(kind, id, of)}`),
    ...damages.map((damage) => plainText(`  ${damage}`)),
  ];
}

function ownerOf(kind: Damaged["kind"], id: string, of: Damaged["of"]): string {
  if (!of) return kind === "baseline" ? "" : ", which no row of the database names";
  const name = of.name === null ? "" : ` (${of.name})`;
  const itself = of.id === id ? "" : ` of ${of.kind} ${of.id}`;
  const session = of.session_id === null || of.session_id === of.id ? "" : `, session ${of.session_id}`;
  return `${itself}${name}${session}, organisation ${of.org_id}`;
}

const KINDS = [
  ...(["session", "checkpoint", "template", "volume", "artifact"] as const),
  ...(["archive", "baseline", "unnamed"] as const),
] as const;
const SPACE = ["ON DISK", "SHARED", "ITS OWN"];

export function renderUsage({ disk, stored, unnamed_object_bytes: unnamed }: Usage): string {
  const present = KINDS.filter((kind) => stored.some((one) => one.kind === kind));
  const totals = present.map((kind) => {
    const all = stored.filter((one) => one.kind === kind);
    return [kind, String(all.length), ...spaceOf(sumOf(all))];
  });
  const rows = present.flatMap((kind) =>
    stored
      .filter((one) => one.kind === kind)
      .toSorted((a, b) => ownOf(b) - ownOf(a))
      .map((one) => [
        kind,
        one.id,
        ...spaceOf(one),
        one.name ?? "",
        one.state ?? "",
        one.session_id === one.id ? "" : (one.session_id ?? ""),
        one.org_id ?? "",
      ]),
  );
  const headings = ["KIND", "ID", ...SPACE, "NAME", "STATE", "SESSION", "ORGANISATION"];
  const used = disk.bytes - disk.free_bytes;
  return [
    renderTable(["KIND", "COUNT", ...SPACE], totals),
    "",
    ...(rows.length > 0 ? [renderTable(...withoutEmptyColumns(headings, rows, 5)), ""] : []),
    ...(unnamed > 0 ? [`objects of deleted artifacts, removed within a day: ${formatBytes(unnamed)}`] : []),
    `the pool's file system: ${formatBytes(used)} of ${formatBytes(disk.bytes)} used, ${formatBytes(disk.free_bytes)} free`,
    "shared: in blocks that others have too, such as the template's; deleting frees only what is its own",
  ].join("\n");
}

type Space = Pick<Taken, "bytes" | "shared_bytes">;

const ownOf = ({ bytes, shared_bytes: shared }: Space) => bytes - shared;
const spaceOf = (space: Space) => [space.bytes, space.shared_bytes, ownOf(space)].map(formatBytes);

function sumOf(all: readonly Space[]): Space {
  return {
    bytes: all.reduce((sum, { bytes }) => sum + bytes, 0),
    shared_bytes: all.reduce((sum, { shared_bytes: bytes }) => sum + bytes, 0),
  };
}
