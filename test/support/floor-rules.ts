/**
 * The rules about rooms of one package: which floor a room stands on, and which columns of a session it writes. A room
 * imports only rooms on lower floors, so that a reader who goes down never meets a room again.
 */
import { basename, dirname, join } from "node:path";
import { importsOf, isTest, type Source, type SourceRule } from "./source-rules.ts";

/**
 * Rooms by floor, lowest first; rooms of one floor do not import each other. Files outside of rooms import any, except those
 * that are named here.
 */
export const FLOORS: Record<string, readonly (readonly string[])[]> = {
  control: [
    ["errors", "db", "metrics"],
    ["access", "jobs"],
    ["http"],
    ["audit", "fleet", "secrets", "storage", "connection-records", "artifact-records"],
    ["archive-records"],
    ["sessions", "registries"],
    ["events", "deadlines", "leases", "keys", "projects", "tokens"],
    ["operations", "volumes"],
    ["egress"],
    ["connections"],
    ["moves"],
    ["checkpoints", "templates", "guest", "previews"],
    ["starts", "exec", "files", "terminals", "service"],
    ["artifacts", "archives", "builds", "processes", "runs", "saved-state"],
    ["upkeep"],
  ],
  node: [
    ["node-error.ts", "config.ts", "qemu"],
    ["host", "guest"],
    ["disks", "network"],
    ["snapshots", "volumes"],
    ["machines", "builds", "archives"],
    ["server", "storage"],
  ],
  gateway: [["policy"], ["tables"], ["egress-log", "previews", "connections"], ["dns"], ["egress"]],
};

/** Owners of a session's columns, by column: the rooms that `packages/control/src/db/tables.ts` declares as writers. */
export function columnOwners(tables: string): Map<string, string> {
  const declared = /\/\*\* Written by ([a-z-]+)\/ alone\.[^*]*\*\/\ninterface \w+Columns \{\n([\s\S]*?)\n\}/g;
  const owners = new Map<string, string>();
  for (const [, room = "", body = ""] of tables.matchAll(declared)) {
    for (const [, column = ""] of body.matchAll(/^ {2}(\w+):/gm)) owners.set(column, room);
  }
  return owners;
}

/** A file outside of rooms counts as a room of its name. */
function roomOf(path: string): { pkg: string; room: string } | undefined {
  const [, pkg, room] = /^packages\/([^/]+)\/src\/([^/]+)/.exec(path) ?? [];
  return pkg === undefined || room === undefined ? undefined : { pkg, room };
}

function floorOf(pkg: string, room = ""): number {
  return FLOORS[pkg]?.findIndex((rooms) => rooms.includes(room)) ?? -1;
}

/** Imports of the same or a higher floor, types included. */
function importsUpwards(source: Source): string[] {
  const own = roomOf(source.path);
  if (!own || !FLOORS[own.pkg] || isTest(source.path)) return [];
  const floor = floorOf(own.pkg, own.room);
  if (floor < 0 && own.room.endsWith(".ts")) return [];
  if (floor < 0) return [`${source.path}: the room ${own.room} stands on no floor; add it to FLOORS`];
  return importsOf(source.text)
    .filter(({ from }) => from.startsWith(".") && !from.endsWith(".json"))
    .filter(({ from }) => {
      const target = roomOf(join(dirname(source.path), from))?.room;
      const below = floorOf(own.pkg, target);
      return target !== own.room && (below < 0 || below >= floor);
    })
    .map(({ from }) => `${source.path} imports ${from}, which is not below it`);
}

/** Text between the parenthesis or brace at `start` and its partner. */
function balanced(text: string, start: number): string {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    if ("({[".includes(text[at] as string)) depth++;
    if (")}]".includes(text[at] as string) && --depth === 0) return text.slice(start, at + 1);
  }
  return text.slice(start);
}

/**
 * Columns of a session that a file assigns: in updates through Kysely, in SQL text, and in functions named `…columns…`
 * that build assignments.
 */
function columnsWritten({ text }: Source): Set<string> {
  const written = new Set<string>();
  const keys = (code: string) => {
    for (const [, key = ""] of code.matchAll(/(?<=[{,(]\s*)(\w+)(?=\s*[:,}])/g)) written.add(key);
  };
  for (const { index } of text.matchAll(/\.updateTable\("sessions"\)/g)) {
    const set = text.indexOf(".set(", index);
    if (set >= 0) keys(balanced(text, set + 4));
  }
  for (const found of text.matchAll(/function \w*[cC]olumns\w*\(/g)) {
    const params = balanced(text, found.index + found[0].length - 1);
    const body = text.indexOf("{\n", found.index + found[0].length - 1 + params.length);
    if (body >= 0) keys(balanced(text, body));
  }
  // A whole update, or assignments that are part of one.
  const assignments = /(?:update sessions set |sql`(?=\w+ = ))([\s\S]*?)(?=\bfrom\b|\bwhere\b|`)/g;
  for (const [, set = ""] of text.matchAll(assignments)) {
    for (const [, key = ""] of set.matchAll(/(?:^|,)\s*(\w+)\s*=/g)) written.add(key);
  }
  return written;
}

/** Columns of a session that a file writes although another room owns them. */
export function secondWriters(source: Source, owners: ReadonlyMap<string, string>): string[] {
  const own = roomOf(source.path);
  if (own?.pkg !== "control" || own.room === "db" || isTest(source.path)) return [];
  return [...columnsWritten(source)]
    .filter((column) => owners.has(column) && owners.get(column) !== own.room)
    .map((column) => `${source.path} writes ${column}, which ${owners.get(column)}/ owns`);
}

/** Import cycles: lists of files of which each imports the next, by value. */
export function cyclesAmong(sources: readonly Source[]): string[][] {
  const paths = new Set(sources.map(({ path }) => path));
  const next = new Map(
    sources.map(({ path, text }) => [
      path,
      importsOf(text)
        .filter(({ from, isTypeOnly }) => from.startsWith(".") && !isTypeOnly)
        .map(({ from }) => join(dirname(path), from))
        .filter((target) => paths.has(target)),
    ]),
  );
  const cycles: string[][] = [];
  const done = new Set<string>();
  const visit = (path: string, above: string[]): void => {
    if (above.includes(path)) cycles.push(above.slice(above.indexOf(path)));
    if (done.has(path) || above.includes(path)) return;
    for (const target of next.get(path) ?? []) visit(target, [...above, path]);
    done.add(path);
  };
  for (const path of next.keys()) visit(path, []);
  return cycles;
}

/** Names of store functions that other rooms may call: they read, lock a row, or delete what is past its retention. */
const READS = /^(find|list|count|is|has|read|keepOnly|lock|deleteOld)[A-Z]/;

export const FLOOR_RULES: SourceRule[] = [
  {
    title: "a room imports only rooms on lower floors",
    check: importsUpwards,
    offenders: [
      { path: "packages/control/src/sessions/get.ts", text: `import { wake } from "../moves/wake.ts";` },
      { path: "packages/control/src/exec/exec.ts", text: `import type { X } from "../files/read.ts";` },
      { path: "packages/control/src/exec/exec.ts", text: `import type { App } from "../app.ts";` },
      { path: "packages/control/src/attic/a.ts", text: "" },
      { path: "packages/node/src/host/slots.ts", text: `import { Networks } from "../network/networks.ts";` },
      { path: "packages/node/src/disks/gate.ts", text: `import type { Pins } from "../network/pins.ts";` },
      { path: "packages/node/src/server/routes.ts", text: `import { startApp } from "../app.ts";` },
      { path: "packages/node/src/node-error.ts", text: `import { run } from "./host/run.ts";` },
      { path: "packages/node/src/attic/a.ts", text: "" },
      { path: "packages/gateway/src/dns/listen.ts", text: `import { dial } from "../egress/dial.ts";` },
      { path: "packages/gateway/src/policy/rules.ts", text: `import type { P } from "../previews/gate.ts";` },
      { path: "packages/gateway/src/tables/wakes.ts", text: `import type { App } from "../app.ts";` },
      { path: "packages/gateway/src/attic/a.ts", text: "" },
    ],
  },
  {
    title: "of another room's store only functions that read, lock or remove what is old are called",
    check: (source) =>
      isTest(source.path)
        ? []
        : importsOf(source.text)
            .filter(({ from }) => /(^|[/-])store\.ts$/.test(basename(from)))
            .filter(({ from }) => dirname(join(dirname(source.path), from)) !== dirname(source.path))
            .flatMap(({ from, names }) =>
              names
                .filter((name) => !READS.test(name))
                .map((name) => `${source.path} imports ${name} from ${from}`),
            ),
    offenders: [
      {
        path: "packages/control/src/exec/run.ts",
        text: `import { saveCap } from "../egress/network-store.ts";`,
      },
      {
        path: "packages/control/src/exec/run.ts",
        text: `import { findRoute, type RouteRow, putRoute } from "../previews/store.ts";`,
      },
    ],
  },
];
