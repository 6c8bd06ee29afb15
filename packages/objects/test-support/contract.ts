/** The contract of every store, as tests that run with each implementation. */
import { createHash, randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { ObjectMismatch, type ObjectStore, readWhole, UploadGone } from "../src/store.ts";

const MIB = 1024 * 1024;
const sumOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/** `store` is asked for when a test begins; every test uses a prefix of its own. */
export function testStore(store: () => ObjectStore): void {
  const prefix = () => `p-${randomBytes(6).toString("hex")}`;
  const contentOf = async (key: string, range?: { first: number; last: number }) => {
    const fetched = await store().get(key, { range });
    return fetched && (await readWhole(fetched));
  };
  const keysBelow = async (start: string) =>
    (await Array.fromAsync(store().list(start))).map(({ key }) => key);

  test("bytes come back as they were put, with their size and sum", async () => {
    const key = `${prefix()}/a/b.c`;
    for (const bytes of [Buffer.alloc(0), Buffer.from("x"), randomBytes(300_000)]) {
      const stored = await store().put(key, bytes);
      expect(stored).toEqual({ sizeBytes: bytes.length, sha256: sumOf(bytes), isNew: true });
      expect(await store().head(key)).toMatchObject({ key, sizeBytes: bytes.length });
      expect((await contentOf(key))?.equals(bytes)).toBe(true);
    }
  });

  test("a stream of unknown length is put whole", async () => {
    const key = `${prefix()}/stream`;
    const pieces = Array.from({ length: 21 }, () => randomBytes(MIB));
    const stored = await store().put(
      key,
      (async function* () {
        yield* pieces;
      })(),
    );
    const bytes = Buffer.concat(pieces);
    expect(stored).toEqual({ sizeBytes: bytes.length, sha256: sumOf(bytes), isNew: true });
    expect(sumOf((await contentOf(key)) ?? Buffer.alloc(0))).toBe(stored.sha256);
  });

  test("parts of an object are read, and others are refused", async () => {
    const key = `${prefix()}/range`;
    const bytes = randomBytes(100_000);
    await store().put(key, bytes);
    for (const [first, last] of [
      [0, 0],
      [99_999, 99_999],
      [10, 70_000],
      [0, 99_999],
    ] as const)
      expect((await contentOf(key, { first, last }))?.equals(bytes.subarray(first, last + 1))).toBe(true);
    await expect(contentOf(key, { first: 100_000, last: 100_000 })).rejects.toThrow(RangeError);
  });

  test("an absent object is undefined, and its deletion succeeds", async () => {
    const key = `${prefix()}/none`;
    expect(await store().get(key)).toBeUndefined();
    expect(await store().head(key)).toBeUndefined();
    await store().delete(key);
    await store().put(key, Buffer.from("x"));
    await store().delete(key);
    expect(await store().head(key)).toBeUndefined();
  });

  test("bytes of another size or sum than announced are not stored", async () => {
    const key = `${prefix()}/wrong`;
    const bytes = randomBytes(9 * MIB);
    const streamed = async function* () {
      yield bytes.subarray(0, MIB);
      yield bytes.subarray(MIB);
    };
    for (const wrong of [{ sizeBytes: 5 }, { sizeBytes: 10 * MIB }, { sha256: sumOf(Buffer.from("y")) }]) {
      await expect(store().put(key, bytes, wrong)).rejects.toThrow(ObjectMismatch);
      await expect(store().put(key, streamed(), wrong)).rejects.toThrow(ObjectMismatch);
    }
    expect(await store().head(key)).toBeUndefined();
    await store().put(key, streamed(), { sizeBytes: bytes.length, sha256: sumOf(bytes) });
    expect(await store().head(key)).toMatchObject({ sizeBytes: bytes.length });
  });

  test("a source that fails leaves the earlier object, or none", async () => {
    const start = prefix();
    await store().put(`${start}/kept`, Buffer.from("before"));
    const failing = async function* () {
      yield randomBytes(6 * MIB);
      throw new Error("cut off");
    };
    for (const name of ["kept", "none"])
      await expect(store().put(`${start}/${name}`, failing())).rejects.toThrow("cut off");
    expect((await contentOf(`${start}/kept`))?.toString()).toBe("before");
    expect(await keysBelow(start)).toEqual([`${start}/kept`]);
  });

  test("of puts that want an absent name, one wins", async () => {
    const key = `${prefix()}/once`;
    const puts = Array.from({ length: 5 }, (_, n) => store().put(key, Buffer.from([n]), { ifAbsent: true }));
    const stored = await Promise.all(puts);
    expect(stored.filter(({ isNew }) => isNew)).toHaveLength(1);
    expect((await contentOf(key))?.[0]).toBe(stored.findIndex(({ isNew }) => isNew));
    expect(await store().put(key, Buffer.from("later"))).toMatchObject({ isNew: true });
    expect((await contentOf(key))?.toString()).toBe("later");
  });

  test("lists are in the order of keys, below a prefix only", async () => {
    const start = prefix();
    const names = ["a", "a-", "a/b", "a/b/c", "a0", "b/x", "z"];
    for (const name of names.toReversed()) await store().put(`${start}/${name}`, Buffer.from(name));
    await store().put(`${start}x/other`, Buffer.from("x"));
    expect(await keysBelow(`${start}/`)).toEqual(names.map((name) => `${start}/${name}`).toSorted());
    expect(await keysBelow(`${start}/a/`)).toEqual([`${start}/a/b`, `${start}/a/b/c`]);
    expect(await keysBelow(`${start}/a/b`)).toEqual([`${start}/a/b`, `${start}/a/b/c`]);
    expect(await keysBelow(`${start}/none/`)).toEqual([]);
  });

  test("names that lead elsewhere are refused by every call", async () => {
    const names = ["", "/a", "a/", "../a", "a/../b", "a/./b", ".a", "a/.b", "a//b", "a\0b", "a b", "ä", "a@"];
    for (const key of [...names, "x".repeat(201), `${"x/".repeat(300)}x`]) {
      await expect(store().put(key, Buffer.from("x")), key).rejects.toThrow("no name");
      await expect(store().get(key), key).rejects.toThrow("no name");
      await expect(store().head(key), key).rejects.toThrow("no name");
      await expect(store().delete(key), key).rejects.toThrow("no name");
      await expect(store().beginUpload(key), key).rejects.toThrow("no name");
    }
    await expect(keysBelow("../a/")).rejects.toThrow("no name");
  });

  test("an upload continues from its parts, and becomes an object only when it is complete", async () => {
    const key = `${prefix()}/parts`;
    const upload = await store().beginUpload(key);
    const [first, second, last] = [randomBytes(5 * MIB), randomBytes(5 * MIB), randomBytes(10)];
    await store().putPart(upload, 1, randomBytes(5 * MIB));
    await store().putPart(upload, 3, last);
    await store().putPart(upload, 1, first);
    expect(await store().head(key)).toBeUndefined();
    const again = { ...upload };
    expect(await store().listParts(again)).toEqual([
      { number: 1, sizeBytes: 5 * MIB },
      { number: 3, sizeBytes: 10 },
    ]);
    await store().putPart(again, 2, second);
    await store().completeUpload(again);
    expect((await contentOf(key))?.equals(Buffer.concat([first, second, last]))).toBe(true);
    expect(await store().listParts(upload)).toEqual([]);
    await store()
      .completeUpload(upload)
      .catch((error: unknown) => expect(error).toBeInstanceOf(UploadGone));
    expect((await contentOf(key))?.equals(Buffer.concat([first, second, last]))).toBe(true);
  });

  test("an upload that is given up leaves nothing", async () => {
    const key = `${prefix()}/given-up`;
    const upload = await store().beginUpload(key);
    await store().putPart(upload, 1, Buffer.from("x"));
    await store().abortUpload(upload);
    await store().abortUpload(upload);
    expect(await store().listParts(upload)).toEqual([]);
    await expect(store().completeUpload(upload)).rejects.toThrow(UploadGone);
    expect(await store().head(key)).toBeUndefined();
  });
}
