import { expect, test } from "vitest";
import { chooseLanguage, commandFor } from "./language.ts";

test.each([
  ["a.py", "python"],
  ["dir.ts/a.js", "node"],
  ["a.mjs", "node"],
  ["a.cjs", "node"],
  ["a.TS", "bun"],
  ["a.tsx", "bun"],
])("%s is %s", (file, language) => {
  expect(chooseLanguage(file)).toBe(language);
});

test("the option wins over the extension", () => {
  expect(chooseLanguage("a.py", "bun")).toBe("bun");
});

test.each(["-", "program", "a.rb"])(
  "%s without an option is a usage error that names the way out",
  (file) => {
    expect(() => chooseLanguage(file)).toThrow(
      expect.objectContaining({ exitCode: 2, hint: expect.stringContaining("--language") }),
    );
  },
);

test("an unknown language names those that exist", () => {
  expect(() => chooseLanguage("-", "perl")).toThrow(/python, node, bun/);
});

test("code that begins with a dash is not taken for an option", () => {
  expect(commandFor("node", "-1")).toEqual(["node", "-e", " -1"]);
  expect(commandFor("python", "-1")).toEqual(["python3", "-c", "-1"]);
});
