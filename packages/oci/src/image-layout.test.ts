/** Layouts as builders write them, and as somebody writes them who wants more than an image of his own. */
import { randomBytes } from "node:crypto";
import {
  appendFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  symlink,
  truncate,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { makeImage, sha256, TYPES } from "../test-support/image.ts";
import { type WrittenLayout, writeLayout } from "../test-support/layout.ts";
import { QUICK_LIMITS } from "../test-support/pull.ts";
import { type LayoutInput, type OpenLayoutFile, pullLayout } from "./image-layout.ts";
import type { PullLimits } from "./limits.ts";

const image = makeImage({ isIndexed: false });
const [first = image.layers[0], second = image.layers[1]] = image.layers;
let root: string;
let layout: WrittenLayout;
let directory: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "layout-"));
  directory = join(root, "pulled");
  await mkdir(directory);
  await mkdir(join(root, "image"));
  layout = await writeLayout(join(root, "image"), image);
});
afterEach(() => rm(root, { recursive: true, force: true }));

const pull = (input: Partial<LayoutInput> = {}) =>
  pullLayout({ reference: "oci:image", open: layout.open, directory, limits: QUICK_LIMITS, ...input });
const limited = (limits: Partial<PullLimits>) => pull({ limits: { ...QUICK_LIMITS, ...limits } });
const index = (change: object) => writeLayout(layout.directory, image, change);
const entryOf = (change: object) => ({
  manifests: [
    {
      mediaType: TYPES.manifest,
      digest: image.manifest,
      size: image.blobs.get(image.manifest)?.length,
      ...change,
    },
  ],
});

test("a layout is read with every digest and size as they should be", async () => {
  const seen: unknown[] = [];
  const pulled = await pull({ onProgress: ({ stage }) => seen.push(stage) });
  expect(pulled.manifestDigest).toBe(image.manifest);
  expect(pulled.config).toMatchObject({ workingDir: "/srv", user: "web" });
  expect(pulled.layers.map(({ digest, size }) => ({ digest, size }))).toEqual(
    image.layers.map(({ digest, size }) => ({ digest, size })),
  );
  for (const { path, digest } of pulled.layers) expect(sha256(await readFile(path))).toBe(digest);
  expect([seen[0], seen.at(-1)]).toEqual(["resolving", "fetched"]);
  expect(pulled.reference).toBe(`oci:image@${pulled.manifestDigest}`);
});

test("what an attempt before has of a layer is thrown away, and a whole layer is not read again", async () => {
  const [whole] = (await pull()).layers;
  await rm(layout.blob(whole?.digest ?? ""));
  await rm(join(directory, second?.digest.replace(":", "-") ?? ""));
  await writeFile(join(directory, `${second?.digest.replace(":", "-")}.partial`), "something else");
  expect((await pull()).layers).toHaveLength(2);
});

describe("a layout is no image", () => {
  test.each<[string, () => Promise<unknown>, string]>([
    ["without its mark", () => rm(join(layout.directory, "oci-layout")), "not_found"],
    [
      "of another version",
      () => writeFile(join(layout.directory, "oci-layout"), '{"imageLayoutVersion": "2.0.0"}'),
      "invalid_image",
    ],
    ["with a mark that has no end", () => truncate(join(layout.directory, "oci-layout"), 5_000), "too_large"],
    ["without an index", () => rm(join(layout.directory, "index.json")), "not_found"],
    ["whose index is no JSON", () => writeFile(join(layout.directory, "index.json"), "{"), "invalid_image"],
    ["whose index is a manifest, too", () => index({ layers: [] }), "invalid_image"],
    ["whose index is empty", () => index({ manifests: [] }), "no_platform"],
    [
      "for another platform",
      () => index(entryOf({ platform: { os: "linux", architecture: "arm64" } })),
      "no_platform",
    ],
    ["with a manifest of another size", () => index(entryOf({ size: 7 })), "bad_digest"],
    ["that leads to a text", () => index(entryOf({ mediaType: "text/plain" })), "no_platform"],
    ["that lacks a layer", () => rm(layout.blob(first?.digest ?? "")), "not_found"],
    ["that lacks its manifest", () => rm(layout.blob(image.manifest)), "not_found"],
    ["with a longer layer", () => appendFile(layout.blob(first?.digest ?? ""), "x"), "bad_digest"],
    ["with a shorter layer", () => truncate(layout.blob(first?.digest ?? ""), 3), "bad_digest"],
    [
      "with a layer of the same size",
      () => writeFile(layout.blob(first?.digest ?? ""), randomBytes(first?.size ?? 0)),
      "bad_digest",
    ],
    ["with another manifest", () => appendFile(layout.blob(image.manifest), " "), "bad_digest"],
  ])("%s", async (_what, spoil, code) => {
    await spoil();
    await expect(pull()).rejects.toMatchObject({ code });
    expect((await readdir(directory)).filter((name) => !name.endsWith(".partial")).length).toBeLessThan(2);
  });

  test.each([
    "sha256:../../../../etc/passwd",
    `sha256:${"../".repeat(21)}a`,
    "../index.json",
    "sha256:",
    "md5:00",
  ])("with the digest %j, and no such file is opened", async (digest) => {
    await index(entryOf({ digest }));
    const opened: string[] = [];
    const open: OpenLayoutFile = (path, signal) => {
      opened.push(path);
      return layout.open(path, signal);
    };
    await expect(pull({ open })).rejects.toMatchObject({ code: "invalid_image" });
    expect(opened).toEqual(["oci-layout", "index.json"]);
  });

  test.each<[string, () => string]>([
    ["the index", () => join(layout.directory, "index.json")],
    ["the folder of its blobs", () => join(layout.directory, "blobs")],
    ["a layer", () => layout.blob(first?.digest ?? "")],
  ])("if %s is a link, even to the right thing", async (_what, place) => {
    const path = place();
    await rename(path, join(root, "elsewhere"));
    await symlink(join(root, "elsewhere"), path);
    await expect(pull()).rejects.toMatchObject({ code: "not_found" });
    // The same without the link is an image.
    await rm(path);
    await rename(join(root, "elsewhere"), path);
    expect((await pull()).layers).toHaveLength(2);
  });

  test.each<[string, Partial<PullLimits>]>([
    ["documents", { manifestBytes: 10 }],
    ["a configuration", { configBytes: 10 }],
    ["layers", { layerBytes: 100 }],
    ["too many layers", { layers: 1 }],
  ])("with %s past the limit", async (_what, limits) => {
    await expect(limited(limits)).rejects.toMatchObject({ code: "too_large" });
  });
});

test("a file of unlimited size is refused by its size, before any of it is read", async () => {
  const file = layout.blob(first?.digest ?? "");
  await truncate(file, 11 * 1024 ** 3);
  let read = 0;
  const open: OpenLayoutFile = async (path, signal) => {
    const opened = await layout.open(path, signal);
    return (
      opened && {
        ...opened,
        content: (async function* () {
          for await (const chunk of opened.content) {
            if (path.endsWith(first?.digest.slice(7) ?? "")) read += chunk.length;
            yield chunk;
          }
        })(),
      }
    );
  };
  await expect(pull({ open })).rejects.toMatchObject({ code: "too_large" });
  expect(read).toBe(0);
});

test("a file that becomes another one while it is read is refused", async () => {
  const open: OpenLayoutFile = async (path, signal) => {
    const opened = await layout.open(path, signal);
    if (!opened || !path.endsWith(second?.digest.slice(7) ?? "")) return opened;
    return {
      ...opened,
      content: (async function* () {
        for await (const chunk of opened.content) yield Buffer.alloc(chunk.length, 0);
      })(),
    };
  };
  await expect(pull({ open })).rejects.toMatchObject({ code: "bad_digest" });
});

test("an error of the opener reaches the caller as it is, and every file is closed", async () => {
  let opened = 0;
  let closed = 0;
  const broken = new Error("the disk is away");
  const open: OpenLayoutFile = async (path, signal) => {
    const file = await layout.open(path, signal);
    if (!file) return undefined;
    opened++;
    let isClosed = false;
    return {
      ...file,
      content: path.startsWith("blobs/")
        ? (async function* (): AsyncGenerator<Uint8Array> {
            yield* [];
            throw broken;
          })()
        : file.content,
      close: () => {
        if (!isClosed) closed++;
        isClosed = true;
        file.close();
      },
    };
  };
  await expect(pull({ open })).rejects.toBe(broken);
  expect(closed).toBe(opened);
});

test("a layout that takes too long is given up, and one whose caller leaves at once", async () => {
  const open: OpenLayoutFile = (_path, signal) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  await expect(pull({ open, limits: { ...QUICK_LIMITS, totalMs: 10 } })).rejects.toMatchObject({
    code: "timed_out",
  });
  const left = new AbortController();
  const pulling = pull({ open, signal: left.signal });
  left.abort(new Error("deleted"));
  await expect(pulling).rejects.toThrow("deleted");
});
