import { createHash, randomBytes } from "node:crypto";
import { inspect } from "node:util";
import { MIB } from "@vivarium/kit/sizes";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { testStore } from "../test-support/contract.ts";
import type { Fault } from "../test-support/fault-proxy.ts";
import { CREDENTIAL } from "../test-support/real-s3.ts";
import { type S3World, startS3World } from "../test-support/s3-world.ts";
import { probe } from "./probe.ts";
import { S3Store } from "./s3-store.ts";
import { type ObjectStore, readWhole, UploadGone } from "./store.ts";

let world: S3World;
let store: ObjectStore;
const opened: ObjectStore[] = [];
const open = (...settings: Parameters<S3World["settings"]>) => {
  const made = new S3Store(world.settings(...settings));
  opened.push(made);
  return made;
};
const openWith = (changed: Partial<ReturnType<S3World["settings"]>>) => {
  const made = new S3Store({ ...world.settings(), ...changed });
  opened.push(made);
  return made;
};
const newKey = () => `t-${randomBytes(6).toString("hex")}/a`;
const base64Sum = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("base64");
const contentOf = async (key: string, of: ObjectStore = store) => {
  const fetched = await of.get(key);
  return fetched && (await readWhole(fetched));
};
async function* inPieces(bytes: Buffer, ofBytes = MIB) {
  for (let at = 0; at < bytes.length; at += ofBytes) yield bytes.subarray(at, at + ofBytes);
}
const uploadsUnderway = async (key: string) => {
  const { Uploads = [] } = await world.s3.listMultipartUploads({ Bucket: world.bucket });
  return Uploads.filter(({ Key }) => Key?.includes(key));
};

beforeAll(async () => {
  world = await startS3World();
  store = open();
});
afterEach(() => {
  world.proxy.faultOf = () => undefined;
});
afterAll(async () => {
  for (const one of opened) await one.close();
  await world[Symbol.asyncDispose]();
});

describe("a store in a bucket", () => {
  testStore(() => store);

  test("lists that have several pages are whole", async () => {
    const paged = open("pages/", { listPage: 3 });
    const names = Array.from({ length: 10 }, (_, n) => `d/${n}`);
    for (const name of names) await paged.put(name, Buffer.from(name));
    expect((await Array.fromAsync(paged.list("d/"))).map(({ key }) => key)).toEqual(names);
    const upload = await paged.beginUpload("many/parts");
    for (let number = 1; number <= 4; number++)
      await paged.putPart(upload, number, Buffer.alloc(number < 4 ? 5 * MIB : 10, number));
    expect((await paged.listParts(upload)).map(({ number }) => number)).toEqual([1, 2, 3, 4]);
    await paged.completeUpload(upload);
    expect(await paged.head("many/parts")).toMatchObject({ sizeBytes: 15 * MIB + 10 });
  });

  test("stores of two prefixes in one bucket do not see each other, nor what others put there", async () => {
    const [one, other] = [open("one/"), open("")];
    await one.put("x/a", Buffer.from("1"));
    await other.put("x/a", Buffer.from("2"));
    await world.s3.putObject({ Bucket: world.bucket, Key: "one/x/foreign", Body: "3" });
    expect((await Array.fromAsync(one.list("x/"))).map(({ key }) => key)).toEqual(["x/a"]);
    expect((await contentOf("x/a", one))?.toString()).toBe("1");
    await one.delete("x/a");
    expect((await contentOf("x/a", other))?.toString()).toBe("2");
  });

  test("another process completes an upload, and a second call of it changes nothing", async () => {
    const key = newKey();
    const upload = await store.beginUpload(key);
    await store.putPart(upload, 1, Buffer.from("content"));
    await open().completeUpload(structuredClone(upload));
    await open().completeUpload(upload);
    expect((await contentOf(key))?.toString()).toBe("content");
    await store.put(key, Buffer.from("later"));
    await expect(store.completeUpload(upload)).rejects.toThrow(UploadGone);
    expect((await contentOf(key))?.toString()).toBe("later");
  });

  test("a source that fails after some parts leaves neither an object nor parts", async () => {
    const key = newKey();
    const failing = async function* () {
      yield* inPieces(randomBytes(30 * MIB));
      throw new Error("cut off");
    };
    await expect(store.put(key, failing())).rejects.toThrow("cut off");
    expect(await store.head(key)).toBeUndefined();
    expect(await uploadsUnderway(key)).toEqual([]);
  });

  test("a put of many parts that wants an absent name leaves the object that came first", async () => {
    const key = newKey();
    const bytes = randomBytes(20 * MIB);
    const puts = [1, 2].map(() => store.put(key, inPieces(bytes), { ifAbsent: true }));
    expect((await Promise.all(puts)).filter(({ isNew }) => isNew)).toHaveLength(1);
    const calls = world.proxy.calls.length;
    const late = await store.put(key, inPieces(randomBytes(20 * MIB)), { ifAbsent: true });
    expect(late).toMatchObject({ isNew: false, sizeBytes: 20 * MIB });
    expect(world.proxy.calls.slice(calls).filter((call) => call.startsWith("PUT"))).toEqual([]);
    expect((await contentOf(key))?.equals(bytes)).toBe(true);
    expect(await uploadsUnderway(key)).toEqual([]);
  });

  test("an aborted call ends with its reason, and an aborted read does, too", async () => {
    const key = newKey();
    const reason = new Error("no longer wanted");
    await expect(store.put(key, Buffer.from("x"), { signal: AbortSignal.abort(reason) })).rejects.toBe(
      reason,
    );
    await store.put(key, randomBytes(8 * MIB));
    world.proxy.once(/^GET/, { kind: "stalled", bytes: MIB });
    const stop = new AbortController();
    const fetched = await store.get(key, { signal: stop.signal });
    const reading = (async () => {
      for await (const _ of fetched?.content ?? []) stop.abort(reason);
    })();
    await expect(reading).rejects.toBe(reason);
  });

  test("it can do what a store must", async () => {
    await probe(store);
    expect(await Array.fromAsync(store.list("probe/"))).toEqual([]);
  });
});

describe("the server of these tests", () => {
  const at = () => ({ Bucket: world.bucket, Key: newKey() });

  test("refuses bytes that do not have their sum, in an object and in a part", async () => {
    const wrong = { Body: Buffer.from("x"), ChecksumSHA256: base64Sum(Buffer.from("y")) };
    const place = at();
    await expect(world.s3.putObject({ ...place, ...wrong })).rejects.toMatchObject({ name: "BadDigest" });
    const { UploadId } = await world.s3.createMultipartUpload({ ...place, ChecksumAlgorithm: "SHA256" });
    await expect(world.s3.uploadPart({ ...place, UploadId, PartNumber: 1, ...wrong })).rejects.toMatchObject({
      name: "BadDigest",
    });
  });

  test("refuses to complete an upload with a part that it does not have", async () => {
    const place = at();
    const { UploadId } = await world.s3.createMultipartUpload({ ...place, ChecksumAlgorithm: "SHA256" });
    const bytes = Buffer.from("x");
    const sum = { ChecksumSHA256: base64Sum(bytes) };
    const { ETag } = await world.s3.uploadPart({ ...place, UploadId, PartNumber: 1, Body: bytes, ...sum });
    const part = { PartNumber: 2, ETag, ...sum };
    const asked = world.s3.completeMultipartUpload({
      ...place,
      UploadId,
      MultipartUpload: { Parts: [part] },
    });
    await expect(asked).rejects.toMatchObject({ name: "InvalidPart" });
  });
});

describe("an error says what is wrong and what to do", () => {
  const secret = "0123456789abcdefghij";

  test("of a credential that the server refuses, and shows nothing of it", async () => {
    const cases = [
      [{ ...CREDENTIAL, secretAccessKey: secret }, "SignatureDoesNotMatch", "secret key is not that"],
      [
        { accessKeyId: "nobody-here", secretAccessKey: secret },
        "XAdminUserNotFound",
        "Correct the credential",
      ],
    ] as const;
    for (const [credential, code, advice] of cases) {
      const refused = openWith({ credentials: async () => credential });
      const error = await refused.put(newKey(), Buffer.from("x")).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code, message: expect.stringContaining(advice) });
      const shown = inspect(error, { depth: 10, showHidden: true });
      for (const part of [secret, credential.accessKeyId, "Signature=", "AWS4-HMAC"])
        expect(shown).not.toContain(part);
    }
  });

  test("of a bucket that does not exist, by every call", async () => {
    const lost = openWith({ bucket: "no-such-bucket" });
    const calls = [
      () => lost.put(newKey(), Buffer.from("x")),
      () => lost.get(newKey()),
      () => lost.head(newKey()),
      () => Array.fromAsync(lost.list("a/")),
      () => lost.beginUpload(newKey()),
    ];
    for (const call of calls)
      await expect(call()).rejects.toThrow(/NoSuchBucket.*Make the bucket, or correct VIV_OBJECTS/);
  });

  test("of a server that is not there", async () => {
    const away = openWith({ endpoint: "http://127.0.0.1:1", limits: { attempts: 2 } });
    await expect(away.head(newKey())).rejects.toThrow(
      /at http:\/\/127.0.0.1:1 did not describe .*ECONNREFUSED.*Check VIV_OBJECTS_ENDPOINT/,
    );
  });
});

describe("a credential", () => {
  test("that was replaced counts for the next request", async () => {
    let credential = { ...CREDENTIAL, secretAccessKey: "of yesterday" };
    const renewed = openWith({ credentials: async () => credential });
    const key = newKey();
    await expect(renewed.put(key, Buffer.from("x"))).rejects.toThrow("SignatureDoesNotMatch");
    credential = CREDENTIAL;
    await renewed.put(key, Buffer.from("x"));
    expect(await renewed.head(key)).toMatchObject({ sizeBytes: 1 });
  });
});

describe("between faults, a store", () => {
  const FAULTS: Fault[] = [
    { kind: "refused", status: 500, code: "InternalError" },
    { kind: "lost" },
    { kind: "reset" },
    { kind: "refused", status: 503, code: "SlowDown" },
    { kind: "cut", bytes: 70 },
  ];

  describe("of which every call meets one at its first attempt", () => {
    let calls = 0;
    testStore(() => {
      world.proxy.faultOf = (_, { headers }) =>
        String(headers["amz-sdk-request"]).startsWith("attempt=1")
          ? FAULTS[calls++ % FAULTS.length]
          : undefined;
      return store;
    });
  });

  test.each(["lost", "reset"] as const)("whose put is %s knows that it made the object", async (kind) => {
    const small = newKey();
    world.proxy.once(/^PUT/, { kind });
    expect(await store.put(small, Buffer.from("mine"), { ifAbsent: true })).toMatchObject({ isNew: true });
    const large = newKey();
    world.proxy.once(/^POST.*uploadId/, { kind });
    const bytes = randomBytes(20 * MIB);
    expect(await store.put(large, inPieces(bytes), { ifAbsent: true })).toMatchObject({ isNew: true });
    expect((await contentOf(large))?.equals(bytes)).toBe(true);
    const upload = await store.beginUpload(newKey());
    await store.putPart(upload, 1, bytes);
    world.proxy.once(/^POST.*uploadId/, { kind });
    await store.completeUpload(upload);
    expect(await store.head(upload.key)).toMatchObject({ sizeBytes: bytes.length });
  });

  test("whose every answer to a put is lost finds what it made", async () => {
    const once = open(undefined, { attempts: 1 });
    world.proxy.faultOf = (call) => (call.startsWith("PUT") ? { kind: "lost" } : undefined);
    for (const ifAbsent of [true, false])
      expect(await once.put(newKey(), Buffer.from("mine"), { ifAbsent })).toMatchObject({ isNew: true });
  });

  test("whose put is refused, and the refusal lost, does not claim another one's object with the same bytes", async () => {
    const key = newKey();
    await open().put(key, Buffer.from("same"));
    world.proxy.once(/^PUT/, { kind: "lost" });
    expect(await store.put(key, Buffer.from("same"), { ifAbsent: true })).toMatchObject({ isNew: false });
  });

  test("gives up after its attempts, and leaves no parts", async () => {
    const few = open(undefined, { attempts: 2 });
    const key = newKey();
    world.proxy.faultOf = (call) =>
      /partNumber=2/.test(call) ? { kind: "refused", status: 503, code: "SlowDown" } : undefined;
    await expect(few.put(key, inPieces(randomBytes(30 * MIB)))).rejects.toThrow(
      /SlowDown, status 503, 2 attempts\. The server is overloaded or broken/,
    );
    expect(world.proxy.calls.filter((call) => call.includes(key) && /partNumber=2/.test(call))).toHaveLength(
      2,
    );
    expect(await store.head(key)).toBeUndefined();
    expect(await uploadsUnderway(key)).toEqual([]);
  });

  test.each<[string, Fault]>([
    ["breaks off", { kind: "cut", bytes: 3 * MIB }],
    ["stalls", { kind: "stalled", bytes: 3 * MIB }],
    ["is short and looks complete", { kind: "cut", bytes: 3 * MIB, isHidden: true }],
  ])("whose answer %s reads all bytes all the same", async (_, fault) => {
    const patient = open(undefined, { idleMs: 500 });
    const key = newKey();
    const bytes = randomBytes(7 * MIB);
    await store.put(key, bytes);
    world.proxy.once(/^GET/, fault);
    expect((await contentOf(key, patient))?.equals(bytes)).toBe(true);
    world.proxy.once(/^GET/, fault);
    const fetched = await patient.get(key, { range: { first: 10, last: 6 * MIB } });
    const read = fetched && (await readWhole(fetched));
    expect(read?.equals(bytes.subarray(10, 6 * MIB + 1))).toBe(true);
  });

  test("whose answers are all short fails, and never returns less", async () => {
    const few = open(undefined, { attempts: 2 });
    const key = newKey();
    await store.put(key, randomBytes(MIB));
    world.proxy.faultOf = (call) =>
      call.startsWith("GET") ? { kind: "cut", bytes: 0, isHidden: true } : undefined;
    await expect(contentOf(key, few)).rejects.toThrow(`only 0 of ${MIB} bytes came`);
  });

  test("whose list is short fails, and never returns less", async () => {
    const start = newKey();
    for (const name of ["a", "b", "c"]) await store.put(`${start}/${name}`, Buffer.from(name));
    for (const bytes of [0, 300, 500, 700]) {
      world.proxy.faultOf = () => ({ kind: "cut", bytes, isHidden: true });
      await expect(Array.fromAsync(store.list(`${start}/`)), String(bytes)).rejects.toThrow("did not list");
    }
  });

  test("whose bytes are changed on their way stores none, and returns none", async () => {
    const key = newKey();
    world.proxy.once(/^PUT/, { kind: "changed", in: "request" });
    await expect(store.put(key, randomBytes(1_000))).rejects.toMatchObject({ status: 400 });
    expect(await store.head(key)).toBeUndefined();
    await store.put(key, randomBytes(1_000));
    world.proxy.once(/^GET/, { kind: "changed", in: "answer" });
    await expect(contentOf(key)).rejects.toThrow("do not have the sum");
  });

  test("whose object is replaced while it is read does not mix the two", async () => {
    const key = newKey();
    await store.put(key, Buffer.alloc(4 * MIB, "a"));
    world.proxy.once(/^GET/, { kind: "cut", bytes: MIB });
    const fetched = await store.get(key, { range: { first: 0, last: 4 * MIB - 1 } });
    await open().put(key, Buffer.alloc(4 * MIB, "b"));
    await expect(fetched && readWhole(fetched)).rejects.toThrow("PreconditionFailed");
  });
});
