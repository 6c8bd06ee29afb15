import { existsSync, mkdtempSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { testStore } from "../test-support/contract.ts";
import { DirectoryStore } from "./directory-store.ts";

const dir = mkdtempSync(path.join(tmpdir(), "objects-"));
let store: DirectoryStore;

beforeAll(async () => {
  store = await DirectoryStore.open(dir);
});

afterAll(() => rmSync(dir, { recursive: true }));

describe("a store in a directory", () => {
  testStore(() => store);

  test("leaves nothing of interrupted writes, and no empty directory", async () => {
    await store.put("x/y/z", Buffer.from("1"));
    await store.delete("x/y/z");
    expect(readdirSync(path.join(dir, "objects"))).not.toContain("x");
    expect(readdirSync(path.join(dir, "incoming"))).toEqual([]);
    expect(readdirSync(path.join(dir, "uploads"))).toEqual([]);
  });

  test("removes what a put that died has left, and not what may still be written", async () => {
    const partial = path.join(dir, "incoming", "f".repeat(32));
    writeFileSync(partial, "half");
    await store.removeUnfinished(3_600_000);
    expect(existsSync(partial)).toBe(true);
    const past = new Date(Date.now() - 3_600_000);
    utimesSync(partial, past, past);
    await store.removeUnfinished(3_600_000);
    expect(readdirSync(path.join(dir, "incoming"))).toEqual([]);
  });

  test("is readable by its own user alone", async () => {
    await store.put("private/a", Buffer.from("1"));
    const modeOf = (name: string) => statSync(path.join(dir, name)).mode & 0o077;
    expect([modeOf("objects"), modeOf("objects/private"), modeOf("objects/private/a@")]).toEqual([0, 0, 0]);
  });

  test("deletes beside puts of the same directory lose no object", async () => {
    const names = Array.from({ length: 40 }, (_, n) => `busy/d/${n}`);
    await Promise.all(
      names.map(async (name, n) => {
        await store.put(name, Buffer.from(name));
        if (n % 2) await store.delete(name);
      }),
    );
    const left = (await Array.fromAsync(store.list("busy/"))).map(({ key }) => key);
    expect(left.toSorted()).toEqual(names.filter((_, n) => n % 2 === 0).toSorted());
  });

  test("opens again with what it had", async () => {
    await store.put("kept/a", Buffer.from("1"));
    const again = await DirectoryStore.open(dir);
    expect(await again.head("kept/a")).toMatchObject({ sizeBytes: 1 });
    writeFileSync(path.join(dir, "objects", "kept", "lost+found"), "");
    expect((await Array.fromAsync(again.list("kept/"))).map(({ key }) => key)).toEqual(["kept/a"]);
  });
});
