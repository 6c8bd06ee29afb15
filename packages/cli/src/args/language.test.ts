import { expect, test } from "vitest";
import { chooseLanguage, programIn } from "./language.ts";

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

test.each([
  ["python", "hello.py", "python3 main.py"],
  ["python", "-", "python3 main.py"],
  ["node", "a.MJS", "node main.mjs"],
  ["node", "a.cjs", "node main.cjs"],
  ["node", "a.ts", "node main.js"],
  ["bun", "a.tsx", "bun run main.tsx"],
  ["bun", "program", "bun run main.ts"],
] as const)("%s runs %s as a file: %s", (language, source, command) => {
  const program = programIn(language, source);
  expect(program.command.join(" ")).toBe(command);
  expect(program.command).toContain(program.file);
});
