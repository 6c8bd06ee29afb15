import { expect, test } from "vitest";
import type { Journal } from "./journal.ts";
import { beforeOfBoth } from "./update-unit.ts";

test("an update after a stuck one goes back to the version that served, with settings that were mended since", () => {
  const stuck = {
    before: { unit: "served", settings: "A=1\n" },
    after: { unit: "failed", settings: "A=2\n" },
  } as Journal;
  const beforeWith = (settings: string) => beforeOfBoth(stuck, { unit: "failed", settings });
  expect(beforeWith("A=2\n")).toEqual({ unit: "served", settings: "A=1\n" });
  expect(beforeWith("A=mended\n")).toEqual({ unit: "served", settings: "A=mended\n" });
});
