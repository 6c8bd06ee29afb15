import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { collectSecret, readSecrets } from "./secrets.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), "secrets-"));
  writeFileSync(path.join(folder, "token"), "from a file\n");
  writeFileSync(path.join(folder, "binary"), Buffer.from([0x68, 0xff, 0xfe]));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const environment = (name: string) => ({ FROM_ENV: "from the environment" })[name];
const read = (...options: string[]) =>
  readSecrets(
    options.reduce((before, option) => collectSecret(option, before), collectSecret(options.shift() ?? "")),
    environment,
  );

test("values come from the environment and from files, without the line end of a file", async () => {
  expect(await read("FROM_ENV", `TOKEN=@${path.join(folder, "token")}`)).toEqual({
    FROM_ENV: "from the environment",
    TOKEN: "from a file",
  });
});

test("a value on the command line is refused, and not repeated", () => {
  expect(() => collectSecret("TOKEN=hunter2")).toThrow(
    "a value on the command line can be seen by other users of this machine",
  );
  expect(() => collectSecret("TOKEN=hunter2")).not.toThrow(/hunter2/);
  expect(() => collectSecret("=hunter2")).not.toThrow(/hunter2/);
});

test.each([
  [["MISSING"], "--secret MISSING: the environment has no variable MISSING"],
  [["FROM_ENV", "FROM_ENV"], "--secret FROM_ENV is given twice"],
  [["TOKEN=@/nonexistent"], "cannot read /nonexistent"],
  [["A=-", "B=-"], "--secret B: the standard input is the value of A already"],
])("%j is refused", async (options, message) => {
  await expect(read(...options)).rejects.toThrow(message);
});

test("a file that is not text is refused, instead of being changed to text", async () => {
  const file = path.join(folder, "binary");
  await expect(read(`TOKEN=@${file}`)).rejects.toThrow("--secret TOKEN: the value is not UTF-8 text");
});
