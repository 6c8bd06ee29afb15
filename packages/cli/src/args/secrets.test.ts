import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { LIMITS } from "@vivarium/contract/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { UsageError } from "../cli-error.ts";
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
  ["in the place of a variable's name", ["FROM_ENV", "ghp_hunter2"]],
  ["with an equals sign at its end", ["FROM_ENV", "hunter2Cg=="]],
  ["with one at its end, alone", ["hunter2Cg="]],
  ["in the place of the name of a file's value", ["hunter2=@BINARY"]],
  ["that cannot be a name", ["hunter2-live=@TOKEN"]],
  ["that is too long for a name", [`hunter2${"x".repeat(LIMITS.envKeyChars)}=@TOKEN`]],
  ["in the place of a file", ["TOKEN=@hunter2"]],
  ["twice", ["hunter2=@TOKEN", "hunter2=@TOKEN"]],
  ["in the place of the names of two inputs", ["hunter2=-", "hunter2=-"]],
])("a secret %s is not repeated", async (_where, options) => {
  const placed = options.map((option) =>
    option.replace(/@(.*)/, (_all, name: string) => `@${path.join(folder, name.toLowerCase())}`),
  );
  const failure = await Promise.resolve()
    .then(() => read(...placed))
    .catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(UsageError);
  const { message, hint, stack } = failure as UsageError;
  expect(message).toContain(`--secret number ${options.length}: `);
  expect(`${message} ${hint} ${stack}`).not.toContain("hunter2");
});

test.each([
  [["MISSING"], "--secret number 1: the environment has no variable of that name"],
  [["FROM_ENV", "FROM_ENV"], "--secret number 2: an earlier --secret has the same name"],
  [["TOKEN=@/nonexistent"], "--secret number 1: the file with the value cannot be read (ENOENT)"],
  [["TOKEN=@/"], "--secret number 1: the file with the value cannot be read (EISDIR)"],
  [["A=-", "B=-"], "--secret number 2: the standard input is the value of --secret number 1 already"],
])("%j is refused", async (options, message) => {
  await expect(read(...options)).rejects.toThrow(message);
});

test("a file that is not text is refused, instead of being changed to text", async () => {
  const file = path.join(folder, "binary");
  await expect(read(`TOKEN=@${file}`)).rejects.toThrow("--secret number 1: the value is not UTF-8 text");
});
