import { expect, test } from "vitest";
import { isLight } from "./json-weight.ts";

const weigh = (value: unknown) => isLight(Buffer.from(JSON.stringify(value)));
/** In an answer of 32 MiB. */
const filled = (item: string) =>
  isLight(Buffer.from(`{"entries":[${Array(Math.floor((32 * 2 ** 20) / (item.length + 1))).fill(item)}]}`));

test.each([
  ["a list of the largest directory", { entries: Array(100_000).fill(`[{,\\"${"x".repeat(240)}`) }],
  [
    "all lines that are ever found, with those around them",
    {
      matches: Array(46_000).fill({
        path: "a",
        line_number: 1,
        line: "",
        before: Array(10).fill(""),
        after: Array(10).fill(""),
      }),
    },
  ],
  [
    "as many named processes as are remembered, of as many words as their records hold",
    {
      processes: Array(10_000).fill({
        name: "a",
        argv: Array(280).fill(""),
        keep_alive: false,
        state: "exited",
      }),
    },
  ],
  [
    "a search that finds as many short lines as fit, all different",
    {
      matches: Array.from({ length: 34_000 }, (_, match) => {
        const lines = Array.from({ length: 20 }, (_, line) => (1_000_000 + match * 20 + line).toString(36));
        return { path: "a", line_number: 1, line: "", before: lines.slice(10), after: lines.slice(0, 10) };
      }),
    },
  ],
  [
    "named processes of as many different words as their records hold",
    {
      processes: Array.from({ length: 10_000 }, (_, process) => ({
        name: "a",
        argv: Array.from({ length: 150 }, (_, word) => (1_000_000 + process * 150 + word).toString(36)),
        keep_alive: false,
        state: "exited",
      })),
    },
  ],
])("%s is light", (_what, answer) => {
  expect(weigh(answer)).toBe(true);
});

test.each(["[]", "{}", "0", '""', "[[[[[[[["])("an answer full of %s is not", (item) => {
  expect(filled(item)).toBe(false);
});

test("an answer full of different words is not", () => {
  const words = Array.from({ length: 3_000_000 }, (_, at) => at.toString(36).padStart(5, "0"));
  expect(weigh({ entries: words })).toBe(false);
});

test.each(["", '"', '"\\', '"\\"', "[".repeat(100), "no JSON at all"])(
  "%j is light, whatever it is",
  (text) => {
    expect(isLight(Buffer.from(text))).toBe(true);
  },
);
