/** Computes and renders the times of a test run from the files of its lanes; reads and prints nothing itself. */
import { matchesGlob } from "node:path";

/** One line of lanes.tsv; times in milliseconds since 1970. */
export interface Lane {
  name: string;
  startedAt: number;
  endedAt: number;
  exitCode: number;
}

/** The part that is used of a report of vitest's JSON reporter. */
export interface Report {
  testResults: {
    name: string;
    /** Start of the first test and end of the last, in milliseconds since 1970. */
    startTime: number;
    endTime: number;
    assertionResults: { fullName: string; status: string; duration?: number | null }[];
  }[];
}

/** test/budget.json: wall-clock minutes for each group of files. A file belongs to the first group that matches it. */
export type Budget = Record<string, { files: string[]; minutes: number }>;

export interface TestTimes {
  lanes: (Lane & { hasReport: boolean; files: number })[];
  wallMs: number;
  groups: { name: string; ms: number; files: number; minutes: number | undefined }[];
  files: { file: string; ms: number }[];
  tests: { test: string; file: string; ms: number }[];
}

interface RanFile {
  file: string;
  lane: string;
  from: number;
  to: number;
}

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const NO_GROUP = "(in no group)";

/** Parses lines `lane<TAB>start<TAB>end<TAB>exit code`, in seconds since 1970. The last line of a lane counts. */
export function readLanes(text: string): Lane[] {
  const lanes = text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line): Lane => {
      const [name = "", ...figures] = line.split("\t");
      const [start, end, exitCode] = figures.map(Number);
      if (figures.length !== 3 || start === undefined || end === undefined || !figures.every(isFigure))
        throw new Error(
          `"${line}" is no line of lanes.tsv; expected lane, start, end and exit code, with tabs`,
        );
      return { name, startedAt: start * SECOND_MS, endedAt: end * SECOND_MS, exitCode: exitCode ?? 0 };
    });
  return [...new Map(lanes.map((lane) => [lane.name, lane])).values()];
}

/** Computes all times. Paths in reports are made relative to `root`; a lane without a report died early. */
export function timesOf(
  { lanes, reports, root }: { lanes: Lane[]; reports: Map<string, Report>; root: string },
  budget: Budget,
): TestTimes {
  const results = lanes.flatMap((lane) =>
    (reports.get(lane.name)?.testResults ?? []).map((result) => ({ lane: lane.name, result })),
  );
  const relative = (name: string) => (name.startsWith(`${root}/`) ? name.slice(root.length + 1) : name);
  const ran = results
    .map(({ lane, result }): RanFile => {
      return { file: relative(result.name), lane, from: result.startTime, to: result.endTime };
    })
    .filter(({ from, to }) => to > from);
  const tests = results.flatMap(({ result }) =>
    result.assertionResults.map(({ fullName, duration }) => {
      return { test: fullName, file: relative(result.name), ms: duration ?? 0 };
    }),
  );
  return {
    lanes: lanes.map((lane) => {
      const files = results.filter((each) => each.lane === lane.name).length;
      return { ...lane, hasReport: reports.has(lane.name), files };
    }),
    wallMs: timeWithAny(lanes),
    groups: groupsOf(ran, budget),
    files: ran.map(({ file, from, to }) => ({ file, ms: to - from })).toSorted(byTime),
    tests: tests.toSorted(byTime),
  };
}

/** Wall-clock time in which at least one lane ran: the parts of a run may be a day apart. */
function timeWithAny(lanes: readonly Lane[]): number {
  let [total, until] = [0, 0];
  for (const { startedAt, endedAt } of lanes.toSorted((a, b) => a.startedAt - b.startedAt)) {
    total += Math.max(0, endedAt - Math.max(startedAt, until));
    until = Math.max(until, endedAt);
  }
  return total;
}

/**
 * Each group's share of the wall clock: files that run at the same time share it equally. So all groups together take
 * no longer than the run.
 */
function groupsOf(ran: readonly RanFile[], budget: Budget): TestTimes["groups"] {
  const groups = new Map(
    Object.entries(budget).map(([name, { minutes }]) => [name, { name, ms: 0, files: 0, minutes }]),
  ) as Map<string, TestTimes["groups"][number]>;
  const shares = sharesOfTime(ran);
  for (const [i, { file }] of ran.entries()) {
    const found = Object.entries(budget).find(([, { files }]) =>
      files.some((glob) => matchesGlob(file, glob)),
    );
    const name = found?.[0] ?? NO_GROUP;
    const group = groups.get(name) ?? { name, ms: 0, files: 0, minutes: undefined };
    groups.set(name, group);
    group.ms += shares[i] ?? 0;
    group.files++;
  }
  return [...groups.values()];
}

function sharesOfTime(ran: readonly RanFile[]): number[] {
  const shares = ran.map(() => 0);
  const instants = [...new Set(ran.flatMap(({ from, to }) => [from, to]))].toSorted((a, b) => a - b);
  for (const [i, from] of instants.entries()) {
    const to = instants[i + 1] ?? from;
    const running = [...ran.keys()].filter((k) => {
      const file = ran[k] as RanFile;
      return file.from <= from && file.to >= to;
    });
    for (const k of running) shares[k] = (shares[k] ?? 0) + (to - from) / running.length;
  }
  return shares;
}

export function renderTimes({ lanes, wallMs, groups, files, tests }: TestTimes, shown: number): string {
  const over = groups.filter(isOver);
  const count = (n: number, what: string) => `${n} ${what}${n === 1 ? "" : "s"}`;
  return [
    `The last run took ${inMinutes(wallMs)} min in ${count(lanes.length, "lane")}.`,
    "",
    ...columns([
      ["lane", "minutes", "files", "exit"],
      ...lanes.map((lane) => [
        lane.name,
        inMinutes(lane.endedAt - lane.startedAt),
        String(lane.files),
        `${lane.exitCode}${lane.exitCode === 0 ? "" : "  FAILED"}${lane.hasReport || lane.exitCode === 0 ? "" : "  left no report"}`,
      ]),
    ]),
    "",
    ...columns([
      ["group", "minutes", "of", "files"],
      ...groups.map((group) => [
        group.name,
        inMinutes(group.ms),
        group.minutes === undefined ? "-" : String(group.minutes),
        `${group.files}${isOver(group) ? "  OVER ITS BUDGET" : ""}`,
      ]),
    ]),
    "",
    "Slowest files, in seconds:",
    ...files.slice(0, shown).map(({ file, ms }) => `${inSeconds(ms)}  ${file}`),
    "",
    "Slowest tests, in seconds:",
    ...tests.slice(0, shown).map(({ test, file, ms }) => `${inSeconds(ms)}  ${file}: ${test}`),
    "",
    over.length === 0
      ? "Every group is within its budget."
      : `Over its budget (test/budget.json): ${over.map(({ name }) => name).join(", ")}.`,
  ].join("\n");
}

function isOver({ ms, minutes }: TestTimes["groups"][number]): boolean {
  return minutes === undefined || ms > minutes * MINUTE_MS;
}

function columns(rows: string[][]): string[] {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, i) =>
        i === 0 || i === row.length - 1 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0),
      )
      .join("  ")
      .trimEnd(),
  );
}

function byTime(a: { ms: number }, b: { ms: number }): number {
  return b.ms - a.ms;
}

function isFigure(text: string): boolean {
  return /^-?\d+(\.\d+)?$/.test(text.trim());
}

function inMinutes(ms: number): string {
  return (ms / MINUTE_MS).toFixed(1);
}

function inSeconds(ms: number): string {
  return (ms / SECOND_MS).toFixed(1).padStart(7);
}
