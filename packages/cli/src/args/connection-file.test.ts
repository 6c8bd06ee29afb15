import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { UsageError } from "../cli-error.ts";
import { readConnectionFiles } from "./connection-file.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), "connections-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const environment = (name: string) => ({ KEY: "from the environment" })[name];
let files = 0;
function file(content: unknown): string {
  const name = path.join(folder, `${files++}.json`);
  writeFileSync(name, typeof content === "string" ? content : JSON.stringify(content));
  return name;
}
const connection = (secret: unknown) => ({
  name: "a",
  origin: "https://api.example.com",
  authentication: { type: "bearer", secret },
});
const read = (...contents: unknown[]) => readConnectionFiles(contents.map(file), environment);

test("a file has one Connection or a list, and secrets come from where it says", async () => {
  const token = file("from a file\n");
  const one = { ...connection({ env: "KEY" }), allow: { methods: ["GET"], paths: ["/v1/*"] } };
  expect(await read(one, [connection("in the clear"), connection({ file: token })])).toEqual([
    { ...one, authentication: { type: "bearer", secret: "from the environment" } },
    connection("in the clear"),
    connection("from a file"),
  ]);
});

test("without a file there are no Connections, and an empty list is one", async () => {
  expect(await readConnectionFiles(undefined, environment)).toBeUndefined();
  expect(await read([])).toEqual([]);
});

test.each([
  ["a text", '"a"', "expected a Connection"],
  ["a Connection without authentication", [{ name: "a" }], "item 0: expected a Connection"],
  ["no secret", connection(undefined), "no place of one"],
  ["a secret in two places", connection({ env: "KEY", file: "x" }), "no place of one"],
  ["a place of another kind", connection({ vault: "x" }), "no place of one"],
  ["a variable that is not set", connection({ env: "NONE" }), 'no variable of the name in "env"'],
  [
    "a file that is not there",
    connection({ file: "/nowhere/key" }),
    "the file with the value cannot be read (ENOENT)",
  ],
])("%s is refused", async (_what, content, message) => {
  await expect(read(content)).rejects.toThrow(message);
});

test.each(["ghp_aSecretInPlaceOfAName", "sk-aSecretInPlaceOfAName"])(
  "a secret in the place of a variable's name is not repeated: %s",
  async (secret) => {
    const failure = await read([connection({ env: secret })]).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(UsageError);
    const { message, hint, stack } = failure as UsageError;
    expect(message).toContain("item 0: the environment has no variable");
    expect(`${message} ${hint} ${stack}`).not.toContain("aSecret");
  },
);

test("a file that is not JSON is refused without a part of it", async () => {
  const text = '{"authentication": {"secret": sk_test}}';
  const failure: Error = await read(text).then(
    () => new Error("accepted"),
    (error) => error,
  );
  expect(failure.message).toContain("is not JSON");
  expect(`${failure.stack} ${failure.cause}`).not.toContain("sk_te");
});
