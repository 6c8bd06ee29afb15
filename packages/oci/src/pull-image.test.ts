import { randomBytes } from "node:crypto";
import { readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { DOCKER_TYPES, makeImage, putInFront, REPOSITORY, serveImage, TYPES } from "../test-support/image.ts";
import { failureOfPull, pull, REGISTRY, withDirectory } from "../test-support/pull.ts";
import { StandIn } from "../test-support/stand-in.ts";
import type { Progress } from "./progress.ts";

describe("a pull", () => {
  test.each([
    ["OCI's types", {}],
    ["Docker's types", { types: DOCKER_TYPES }],
    ["a manifest without an index", { isIndexed: false }],
    ["a manifest that does not repeat its type", { manifest: { mediaType: undefined } }],
  ])("brings every layer and the configuration, with %s", async (_, parts) => {
    const image = makeImage(parts);
    await using standIn = await StandIn.start();
    standIn.serve(REGISTRY, serveImage(image));
    await withDirectory(async (directory) => {
      const pulled = await pull(standIn, directory);
      expect(pulled).toMatchObject({
        reference: `${REGISTRY}/${REPOSITORY}:1@${image.top}`,
        manifestDigest: image.manifest,
        config: {
          env: ["PATH=/bin", "A=b=c"],
          entrypoint: ["/init"],
          cmd: [],
          workingDir: "/srv",
          user: "web",
          stopSignal: "",
          labels: { a: "b" },
        },
      });
      expect(pulled.layers.map(({ digest }) => digest)).toEqual(image.layers.map(({ digest }) => digest));
      expect(pulled.layers.map(({ diffId }) => diffId)).toEqual(pulled.config.diffIds);
      for (const { path, digest } of pulled.layers)
        expect(await readFile(path)).toEqual(image.blobs.get(digest));
      expect(await readdir(directory)).toHaveLength(image.layers.length);
    });
  });

  test("says which image it is before it fetches a layer, and ends if nobody can keep that", async () => {
    const image = makeImage();
    await using standIn = await StandIn.start();
    standIn.serve(REGISTRY, serveImage(image));
    await withDirectory(async (directory) => {
      const full = new Error("the disk is full");
      const names: unknown[] = [];
      const onResolved = async (found: object) => {
        names.push(found, await readdir(directory));
        throw full;
      };
      await expect(pull(standIn, directory, { onResolved })).rejects.toBe(full);
      const reference = `${REGISTRY}/${REPOSITORY}:1@${image.top}`;
      expect(names).toEqual([{ reference, manifestDigest: image.manifest }, []]);
      expect(await readdir(directory)).toEqual([]);
      // The text is a reference that leads to the same image.
      expect(await pull(standIn, directory, { reference })).toMatchObject({ reference });
    });
  });

  test("reports its stage, layers and bytes", async () => {
    const image = makeImage({ layers: [randomBytes(8_000_000), randomBytes(1_000)] });
    const seen: Progress[] = [];
    await using standIn = await StandIn.start();
    standIn.serve(REGISTRY, serveImage(image));
    await withDirectory((directory) =>
      pull(standIn, directory, { onProgress: (progress) => seen.push(progress) }),
    );
    const totals = { layers: 2, bytes: 8_001_000 };
    expect(seen[0]).toEqual({
      stage: "resolving",
      layers: { done: 0, total: 0 },
      bytes: { done: 0, total: 0 },
    });
    expect(seen.at(-1)).toEqual({
      stage: "fetched",
      layers: { done: totals.layers, total: totals.layers },
      bytes: { done: totals.bytes, total: totals.bytes },
    });
    const between = seen.filter(({ bytes }) => bytes.done > 1_000_000 && bytes.done < totals.bytes);
    expect(between.length).toBeGreaterThan(1);
  });

  test("asks for a digest although a tag is given beside it, and believes nothing else", async () => {
    const [wanted, other] = [makeImage(), makeImage()];
    await using standIn = await StandIn.start();
    standIn.serve(REGISTRY, serveImage(wanted));
    const reference = `${REGISTRY}/${REPOSITORY}:1@${wanted.manifest}`;
    const pulled = await withDirectory((directory) => pull(standIn, directory, { reference }));
    expect(pulled.reference).toBe(reference);
    expect(standIn.requests[0]?.path).toBe(`/v2/${REPOSITORY}/manifests/${wanted.manifest}`);

    standIn.serve(
      REGISTRY,
      serveImage({
        ...other,
        blobs: new Map([...wanted.blobs.keys()].map((key) => [key, Buffer.from("{}")])),
      }),
    );
    expect(await failureOfPull(standIn, { reference })).toMatchObject({ code: "bad_digest" });
  });

  test("fetches a layer that appears twice once", async () => {
    const layer = randomBytes(1_000);
    const image = makeImage({ layers: [layer, randomBytes(10), layer] });
    await using standIn = await StandIn.start();
    standIn.serve(REGISTRY, serveImage(image));
    await withDirectory(async (directory) => {
      const { layers } = await pull(standIn, directory);
      expect(layers).toHaveLength(3);
      expect(layers[0]?.path).toBe(layers[2]?.path);
    });
    expect(standIn.requests.filter(({ path }) => path.endsWith(image.layers[0]?.digest ?? "?"))).toHaveLength(
      1,
    );
  });

  test("takes the manifest of the wanted platform", async () => {
    const image = makeImage({
      config: { architecture: "riscv64" },
      platform: { architecture: "riscv64" },
    });
    await using standIn = await StandIn.start();
    standIn.serve(REGISTRY, serveImage(image));
    expect(await failureOfPull(standIn)).toMatchObject({ code: "no_platform" });
    const platform = { os: "linux", architecture: "riscv64" };
    await withDirectory((directory) => pull(standIn, directory, { platform }));
  });

  test("passes an index inside of an index", async () => {
    const inner = makeImage();
    const entry = { mediaType: TYPES.index, digest: inner.top, size: inner.blobs.get(inner.top)?.length };
    const image = putInFront(inner, TYPES.index, { schemaVersion: 2, manifests: [entry] });
    await using standIn = await StandIn.start();
    standIn.serve(REGISTRY, serveImage(image));
    const pulled = await withDirectory((directory) => pull(standIn, directory));
    expect(pulled.manifestDigest).toBe(inner.manifest);
  });

  test("does not fetch again what an earlier one has brought", async () => {
    const image = makeImage();
    await using standIn = await StandIn.start();
    standIn.serve(REGISTRY, serveImage(image));
    await withDirectory(async (directory) => {
      await pull(standIn, directory);
      standIn.requests.length = 0;
      await pull(standIn, directory);
      expect(
        standIn.requests.filter(({ path }) => image.layers.some(({ digest }) => path.endsWith(digest))),
      ).toEqual([]);
    });
  });

  test("follows no link that lies in its directory", async () => {
    const image = makeImage({ layers: [randomBytes(100)] });
    await using standIn = await StandIn.start();
    standIn.serve(REGISTRY, serveImage(image));
    await withDirectory(async (directory) => {
      const kept = join(directory, "kept");
      await writeFile(kept, "as it was");
      const name = image.layers[0]?.digest.replace(":", "-");
      await symlink(kept, join(directory, `${name}.partial`));
      await expect(pull(standIn, directory)).rejects.toMatchObject({ code: "ELOOP" });
      expect(await readFile(kept, "utf8")).toBe("as it was");
    });
  });

  test("ends with its signal, for the reason of its caller", async () => {
    const image = makeImage();
    const caller = new AbortController();
    await using standIn = await StandIn.start();
    standIn.serve(REGISTRY, (request, response) => {
      if (!request.url?.includes("/blobs/")) return serveImage(image)(request, response);
      response.writeHead(200, { "content-length": 5_000 }).write("begun");
      caller.abort(new Error("cancelled by its caller"));
    });
    await withDirectory(async (directory) => {
      await expect(pull(standIn, directory, { signal: caller.signal })).rejects.toThrow(
        "cancelled by its caller",
      );
    });
  });
});
