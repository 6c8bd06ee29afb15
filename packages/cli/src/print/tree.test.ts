import { stripVTControlCharacters } from "node:util";
import { expect, test } from "vitest";
import { buildForest } from "../lineage/forest.ts";
import { paintFor } from "./paint.ts";
import { renderForest } from "./tree.ts";

const now = new Date("2027-01-01T10:00:00Z");
const session = (session_id: string, created_at: string, facts = {}) => ({
  session_id,
  state: "live" as const,
  created_at,
  last_active_at: created_at,
  size: "small",
  vcpus: 1,
  mem_mb: 1024,
  ...facts,
});
const checkpoint = { checkpoint_id: "chk_1", parent_session_id: "root", session_id: "root" };
const forest = buildForest(
  [
    session("root", "2027-01-01T08:00:00Z", { name: "web" }),
    session("one", "2027-01-01T08:30:00Z", {
      parent_session_id: "root",
      state: "paused",
      paused_at: "2027-01-01T09:55:00Z",
      wake_at: "2027-01-01T12:00:00Z",
    }),
    session("two", "2027-01-01T09:58:00Z", { from_checkpoint: "chk_1", size: "medium" }),
    session("three", "2027-01-01T09:59:00Z", { parent_session_id: "two" }),
    session("four", "2027-01-01T09:59:30Z", { parent_session_id: "lost" }),
  ],
  [{ ...checkpoint, name: "before", size_bytes: 13_000_000, created_at: "2027-01-01T09:00:00Z" }],
);

test("a tree shows descent by its lines, and states, sizes and ages beside them", () => {
  expect(renderForest(forest, now).split("\n")).toEqual([
    "ID              KIND        STATE   SIZE    AGE  NAME    DETAIL",
    "root            session     live    small   2h   web",
    "├─ one          fork        paused  small   1h           for 5m, wakes in 2h",
    "└─ chk_1        checkpoint          12 MiB  1h   before",
    "   └─ two       start       live    medium  2m",
    "      └─ three  fork        live    small   1m",
    "lost            session     gone",
    "└─ four         fork        live    small   30s",
  ]);
});

test("colours are for terminals of people who have not declined them, and change no column", () => {
  const paint = (isInteractive: boolean, wantsColour: boolean) =>
    renderForest(forest, now, paintFor({ terminal: { isInteractive }, config: { wantsColour } }));
  const plain = renderForest(forest, now);
  expect(paint(false, true)).toBe(plain);
  expect(paint(true, false)).toBe(plain);
  expect(paint(true, true)).not.toBe(plain);
  expect(stripVTControlCharacters(paint(true, true))).toBe(plain);
  expect(paint(true, true)).toContain("\u001b[32mlive  \u001b[39m");
});

test("without anything the tree says how to begin", () => {
  expect(renderForest([], now)).toContain("viv create");
});
