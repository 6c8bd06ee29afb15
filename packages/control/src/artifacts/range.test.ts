import { expect, test } from "vitest";
import { globsOf } from "./patterns.ts";
import { wantedRange } from "./range.ts";

test.each([
  [undefined, 10, "all"],
  ["bytes=0-9", 10, { first: 0, last: 9 }],
  ["bytes=3-", 10, { first: 3, last: 9 }],
  ["bytes=-3", 10, { first: 7, last: 9 }],
  ["bytes=-30", 10, { first: 0, last: 9 }],
  ["bytes=5-1000", 10, { first: 5, last: 9 }],
  ["bytes=10-", 10, "none"],
  ["bytes=-0", 10, "none"],
  ["bytes=0-", 0, "none"],
  ["bytes=-5", 0, "none"],
  ["bytes=5-3", 10, "all"],
  ["bytes=0-1,3-4", 10, "all"],
  ["bytes=-", 10, "all"],
  ["bytes=a-b", 10, "all"],
  ["lines=0-1", 10, "all"],
  ["bytes=0-9999999999999999999", 10, "all"],
] as const)("of the range %s of %i bytes is served: %j", (header, size, wanted) => {
  expect(wantedRange(header, size)).toEqual(wanted);
});

test.each([
  ["a", ["a", "a/**"]],
  ["/workspace/a/b", ["a/b", "a/b/**"]],
  ["./a//b/", ["a/b", "a/b/**"]],
  ["a/../b", ["b", "b/**"]],
  [".", ["**"]],
  ["/workspace", ["**"]],
  ["*.txt", ["*.txt"]],
  ["**/x", ["**/x"]],
  ["a/[bc]", ["a/[bc]"]],
])("the path %s stands for the globs %j", (path, globs) => {
  expect(globsOf(path)).toEqual(globs);
});
