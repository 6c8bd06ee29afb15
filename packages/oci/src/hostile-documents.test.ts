import { randomBytes } from "node:crypto";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  DOCKER_TYPES,
  type ImageParts,
  type MadeImage,
  makeImage,
  putInFront,
  REPOSITORY,
  serveImage,
  sha256,
  TYPES,
} from "../test-support/image.ts";
import { failureOfPull, pull, REGISTRY, withDirectory } from "../test-support/pull.ts";
import { StandIn } from "../test-support/stand-in.ts";
import type { PullLimits } from "./limits.ts";

let standIn: StandIn;

beforeEach(async () => {
  standIn = await StandIn.start();
});
afterEach(async () => {
  await standIn[Symbol.asyncDispose]();
});

const failureOf = async (image: MadeImage, limits: Partial<PullLimits> = {}) => {
  standIn.serve(REGISTRY, serveImage(image));
  return await failureOfPull(standIn, { limits });
};
const layerOf = (change: object) => [{ ...makeImage().layers[0], ...change }];
const manifestOf = (change: object): ImageParts => ({ isIndexed: false, manifest: change });

describe("a manifest", () => {
  test.each<[string, ImageParts, string]>([
    ["without layers", manifestOf({ layers: [] }), "invalid_image"],
    ["without a configuration", manifestOf({ config: undefined }), "invalid_image"],
    ["that is an index, too", manifestOf({ manifests: [] }), "invalid_image"],
    ["that has schema 1, too", manifestOf({ fsLayers: [] }), "invalid_image"],
    ["of schema 1", manifestOf({ schemaVersion: 1 }), "unsupported_media_type"],
    ["of schema 3", manifestOf({ schemaVersion: 3 }), "invalid_image"],
    ["that says another type than its server", manifestOf({ mediaType: TYPES.index }), "invalid_image"],
    [
      "of something else than an image",
      manifestOf({ config: { ...layerOf({})[0], mediaType: "application/vnd.oci.empty.v1+json" } }),
      "unsupported_media_type",
    ],
    [
      "with a layer of another kind",
      manifestOf({ layers: layerOf({ mediaType: "text/html" }) }),
      "unsupported_media_type",
    ],
    [
      "with a layer from elsewhere",
      manifestOf({
        layers: layerOf({ mediaType: "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip" }),
      }),
      "unsupported_media_type",
    ],
    [
      "with an encrypted layer",
      manifestOf({ layers: layerOf({ mediaType: `${TYPES.gzip}+encrypted` }) }),
      "unsupported_media_type",
    ],
    [
      "with a type from the prototype",
      manifestOf({ layers: layerOf({ mediaType: "constructor" }) }),
      "unsupported_media_type",
    ],
    [
      "with a path for a digest",
      manifestOf({ layers: layerOf({ digest: "sha256:../../../../etc/passwd" }) }),
      "invalid_image",
    ],
    ["with a short digest", manifestOf({ layers: layerOf({ digest: "sha256:abc" }) }), "invalid_image"],
    [
      "with a weak digest",
      manifestOf({ layers: layerOf({ digest: `md5:${"0".repeat(32)}` }) }),
      "invalid_image",
    ],
    ["with a negative size", manifestOf({ layers: layerOf({ size: -1 }) }), "invalid_image"],
    ["with a size of zero", manifestOf({ layers: layerOf({ size: 0 }) }), "invalid_image"],
    ["with a size that is no number", manifestOf({ layers: layerOf({ size: "10" }) }), "invalid_image"],
    ["with a broken size", manifestOf({ layers: layerOf({ size: 0.5 }) }), "invalid_image"],
    ["with a size beyond all numbers", manifestOf({ layers: layerOf({ size: 2 ** 60 }) }), "invalid_image"],
    [
      "with two sizes for a layer",
      manifestOf({
        layers: [
          ...layerOf({ digest: `sha256:${"1".repeat(64)}` }),
          ...layerOf({ digest: `sha256:${"1".repeat(64)}`, size: 1 }),
        ],
      }),
      "invalid_image",
    ],
    ["with too many bytes of layers", manifestOf({ layers: layerOf({ size: 11 * 1024 ** 3 }) }), "too_large"],
    [
      "with too many layers",
      manifestOf({ layers: Array.from({ length: 129 }, () => layerOf({})[0]) }),
      "too_large",
    ],
    [
      "with a configuration that is too large",
      manifestOf({ config: { mediaType: TYPES.config, digest: `sha256:${"1".repeat(64)}`, size: 2 ** 30 } }),
      "too_large",
    ],
  ])("%s is refused before any layer is fetched", async (_, parts, code) => {
    const image = makeImage(parts);
    expect(await failureOf(image)).toMatchObject({ code });
    expect(standIn.requests.filter(({ path }) => path.includes("/blobs/"))).toEqual([]);
  });

  test("of more bytes than allowed is not read to its end", async () => {
    const image = makeImage({ isIndexed: false, manifest: { annotations: { x: "x".repeat(3_000) } } });
    expect(await failureOf(image, { manifestBytes: 2_000 })).toMatchObject({ code: "too_large" });
  });

  test("of layers with foreign addresses is fetched from the registry all the same", async () => {
    const layers = makeImage().layers.map((layer) => ({
      ...layer,
      urls: ["http://169.254.169.254/", "https://evil.example.org/"],
    }));
    const plain = makeImage();
    const image = makeImage({
      isIndexed: false,
      manifest: { layers: layers.map((layer, index) => ({ ...layer, ...plain.layers[index] })) },
    });
    standIn.serve(REGISTRY, serveImage({ ...image, blobs: new Map([...image.blobs, ...plain.blobs]) }));
    await withDirectory((directory) => pull(standIn, directory));
    expect(new Set(standIn.dialled)).toEqual(new Set([`${REGISTRY}:443`]));
  });

  test.each(["", "{", "[]", "null", '"text"', "\ufeff{}", '{"schemaVersion":2}'])(
    "that is %j is refused",
    async (text) => {
      const bytes = Buffer.from(text);
      const top = sha256(bytes);
      const image = {
        ...makeImage(),
        top,
        blobs: new Map([[top, bytes]]),
        types: new Map([[top, TYPES.manifest]]),
      };
      expect(await failureOf(image)).toMatchObject({ code: "invalid_image" });
    },
  );

  test("that is no UTF-8 is refused", async () => {
    const bytes = Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]);
    const top = sha256(bytes);
    const image = {
      ...makeImage(),
      top,
      blobs: new Map([[top, bytes]]),
      types: new Map([[top, TYPES.manifest]]),
    };
    expect(await failureOf(image)).toMatchObject({ code: "invalid_image" });
  });

  test.each([
    "",
    "application/json",
    "text/html",
    "application/vnd.docker.distribution.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
  ])("that is sent as %j is refused", async (type) => {
    const image = makeImage({ isIndexed: false });
    image.types.set(image.top, type);
    expect(await failureOf(image)).toMatchObject({ code: "unsupported_media_type" });
  });

  test("that is sent as an index is refused", async () => {
    const image = makeImage({ isIndexed: false });
    image.types.set(image.top, TYPES.index);
    expect(await failureOf(image)).toMatchObject({ code: "invalid_image" });
  });

  test("of another digest than its index says is refused", async () => {
    const image = makeImage();
    image.blobs.set(image.manifest, Buffer.from(`${image.blobs.get(image.manifest)} `));
    expect(await failureOf(image)).toMatchObject({ code: "bad_digest" });
  });
});

describe("an index", () => {
  test.each<[string, ImageParts, string]>([
    ["without entries", { index: { manifests: [] } }, "no_platform"],
    ["of other platforms", { platform: { os: "windows" } }, "no_platform"],
    ["with configurations, too", { index: { config: {} } }, "invalid_image"],
    ["with layers, too", { index: { layers: [] } }, "invalid_image"],
    ["with malformed entries", { index: { manifests: [{ digest: 1 }] } }, "invalid_image"],
    [
      "whose entry has another size",
      {
        platform: {},
        index: {
          manifests: [
            {
              mediaType: TYPES.manifest,
              digest: makeImage({ layers: [Buffer.from("x")] }).manifest,
              size: 1,
            },
          ],
        },
        layers: [Buffer.from("x")],
      },
      "bad_digest",
    ],
  ])("%s is refused", async (_, parts, code) => {
    expect(await failureOf(makeImage(parts))).toMatchObject({ code });
  });

  test("prefers the entry without a variant", async () => {
    const image = makeImage();
    const manifest = {
      mediaType: TYPES.manifest,
      digest: image.manifest,
      size: image.blobs.get(image.manifest)?.length,
    };
    const platform = { os: "linux", architecture: "amd64" };
    const entries = [
      { ...manifest, digest: `sha256:${"c".repeat(64)}`, platform: { ...platform, variant: "v3" } },
      { ...manifest, platform },
    ];
    standIn.serve(
      REGISTRY,
      serveImage(putInFront(image, TYPES.index, { schemaVersion: 2, manifests: entries })),
    );
    await withDirectory((directory) => pull(standIn, directory));
  });

  test("inside of too many others is refused", async () => {
    let image = makeImage();
    for (let depth = 0; depth < 4; depth++) {
      const entry = { mediaType: TYPES.index, digest: image.top, size: image.blobs.get(image.top)?.length };
      image = putInFront(image, TYPES.index, { schemaVersion: 2, manifests: [entry] });
    }
    expect(await failureOf(image)).toMatchObject({ code: "invalid_image" });
    expect(standIn.requests).toHaveLength(4);
  });
});

describe("a configuration", () => {
  const run = (config: object): ImageParts => ({ config: { config } });

  test.each<[string, ImageParts, string]>([
    ["of another platform", { config: { os: "windows" } }, "no_platform"],
    ["of another processor", { config: { architecture: "arm64" } }, "no_platform"],
    ["without a platform", { config: { os: undefined } }, "invalid_image"],
    [
      "with another number of layers",
      { config: { rootfs: { type: "layers", diff_ids: [] } } },
      "invalid_image",
    ],
    ["without layers", { config: { rootfs: undefined } }, "invalid_image"],
    [
      "with layers that are no digests",
      { config: { rootfs: { type: "layers", diff_ids: ["a", "b"] } } },
      "invalid_image",
    ],
    ["with variables that are none", run({ Env: ["=x"] }), "invalid_image"],
    ["with a variable without a value", run({ Env: ["PATH"] }), "invalid_image"],
    ["with a NUL in a variable", run({ Env: ["A=\0"] }), "invalid_image"],
    ["with a NUL in its program", run({ Entrypoint: ["/bin/sh\0"] }), "invalid_image"],
    ["with a program that is a text", run({ Cmd: "/bin/sh" }), "invalid_image"],
    ["with a user that is a number", run({ User: 0 }), "invalid_image"],
    ["with labels that are a list", run({ Labels: ["a"] }), "invalid_image"],
  ])("%s is refused before any layer is fetched", async (_, parts, code) => {
    const image = makeImage(parts);
    expect(await failureOf(image)).toMatchObject({ code });
    for (const { digest } of image.layers)
      expect(standIn.requests.some(({ path }) => path.endsWith(digest))).toBe(false);
  });

  test.each<[string, object]>([
    ["nothing to run", { config: null }],
    ["no section for it", { config: undefined }],
    [
      "only nulls",
      { config: { Env: null, Entrypoint: null, Cmd: null, Labels: null, User: null, WorkingDir: null } },
    ],
  ])("with %s is taken", async (_, config) => {
    standIn.serve(REGISTRY, serveImage(makeImage({ config })));
    const pulled = await withDirectory((directory) => pull(standIn, directory));
    expect(pulled.config).toMatchObject({
      env: [],
      entrypoint: [],
      cmd: [],
      labels: {},
      user: "",
      workingDir: "",
    });
  });

  test("does not change what all objects have", async () => {
    const labels = JSON.parse('{"__proto__":"polluted","constructor":"x","a":"b"}') as object;
    standIn.serve(REGISTRY, serveImage(makeImage(run({ Labels: labels }))));
    const pulled = await withDirectory((directory) => pull(standIn, directory));
    expect(Object.getPrototypeOf(pulled.config.labels)).toBe(Object.prototype);
    expect(pulled.config.labels.a).toBe("b");
  });

  test("of another digest, or another length, than the manifest says is refused", async () => {
    const image = makeImage({ types: DOCKER_TYPES });
    const config = [...image.types].find(([, type]) => type === DOCKER_TYPES.config)?.[0] ?? "";
    image.blobs.set(config, Buffer.from(`${image.blobs.get(config)} `));
    expect(await failureOf(image)).toMatchObject({ code: "bad_digest" });
    image.blobs.set(config, randomBytes(2 ** 21));
    expect(await failureOf(image)).toMatchObject({ code: "too_large" });
  });
});

test("what a registry writes into its documents cannot break a message", async () => {
  const error = await failureOf(
    makeImage(manifestOf({ layers: layerOf({ mediaType: `\n\u001b[31m${"x".repeat(255 - 6)}` }) })),
  );
  expect(error.message).toMatch(/^[\x20-\x7e]+$/);
  expect(error.message.length).toBeLessThan(200);
});

test("an image that is not there is not found", async () => {
  standIn.serve(REGISTRY, serveImage(makeImage(), "another/one"));
  expect(await failureOfPull(standIn)).toMatchObject({
    code: "not_found",
    message: expect.stringContaining(REPOSITORY),
  });
});
