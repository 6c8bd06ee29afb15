/** The keys that a process has loaded, while their source changes under it. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeEach, expect, test } from "vitest";
import { addKek } from "./kek-source.ts";
import { Keyring } from "./keyring.ts";

const folder = mkdtempSync(path.join(tmpdir(), "keyring-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const file = path.join(folder, "kek");
const line = (id: string, letter: string) => `${id}:${Buffer.alloc(32, letter).toString("base64url")}\n`;
const write = (text: string) => writeFileSync(file, text, { mode: 0o600 });
beforeEach(() => write(line("kek_1", "a")));

async function load(mayMake = false): Promise<Keyring> {
  return (await Keyring.load({ kind: "file", file, mayMake })).keyring;
}

test("requests that need a new key of another process at the same time all get it", async () => {
  const keyring = await load();
  await keyring.reload();
  write(line("kek_1", "a") + line("kek_2", "b"));
  const found = await Promise.all([1, 2, 3].map(() => keyring.require("kek_2")));
  expect(found.map(({ id }) => id)).toEqual(["kek_2", "kek_2", "kek_2"]);
});

test("another key of a known name is not taken over, nor sealed with", async () => {
  const keyring = await load();
  write(line("kek_1", "z"));
  await expect(keyring.reload()).rejects.toThrow(/another key called kek_1 than the one in use/);
  expect(keyring.current?.key).toEqual(Buffer.alloc(32, "a"));
  await expect(keyring.require("kek_5")).rejects.toMatchObject({ code: "unavailable" });
});

test("a key that is gone from the source opens until the process ends", async () => {
  const keyring = await load();
  write(line("kek_2", "b"));
  await keyring.reload();
  expect(keyring.current?.id).toBe("kek_2");
  expect((await keyring.require("kek_1")).key).toEqual(Buffer.alloc(32, "a"));
});

test("a rotation to a key that a sweep has already taken over is one", async () => {
  const keyring = await load();
  write(line("kek_1", "a") + line("kek_2", "b"));
  await keyring.refresh();
  expect(await keyring.rotate()).toBe(true);
  expect(await keyring.rotate()).toBe(false);
});

test("a file whose next number would be too long stays as it is", async () => {
  write(line("kek_999999999", "a"));
  const before = readFileSync(file, "utf8");
  await expect(addKek(file)).rejects.toThrow(/must be kek_<number>/);
  expect(readFileSync(file, "utf8")).toBe(before);
});
