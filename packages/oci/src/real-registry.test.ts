/** Pulls from a registry that others have written, by each way in which it admits its clients. */
import { execFileSync } from "node:child_process";
import { createPrivateKey, randomBytes, sign, X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import type { RequestListener } from "node:http";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeAuthority } from "@vivarium/kit/certificates";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type MadeImage, makeImage, putInFront, sha256, TYPES } from "../test-support/image.ts";
import { QUICK_LIMITS, withDirectory } from "../test-support/pull.ts";
import { push, type RealRegistry, startRegistry, tarOf, USER } from "../test-support/real-registry.ts";
import { StandIn } from "../test-support/stand-in.ts";
import type { Dial } from "./dial.ts";
import { pingRegistry } from "./ping-registry.ts";
import { type PullInput, pullImage } from "./pull-image.ts";

const HOST = "registry.example.com";
const AUTH = "auth.example.com";
const REPOSITORY = "team/app";
const REFERENCE = `${HOST}/${REPOSITORY}:1.0`;
const CREDENTIAL = { registry: HOST, ...USER };
let directory: string;
let image: MadeImage;
let open: RealRegistry;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "registry-"));
  image = await makeRealImage(directory);
  open = await startRegistry({ directory });
  await push(open.port, REPOSITORY, "1.0", image);
});
afterAll(async () => {
  await open?.[Symbol.asyncDispose]();
  await rm(directory, { recursive: true, force: true });
});

/** Three layers of files, one with bytes that do not compress. */
async function makeRealImage(parent: string): Promise<MadeImage> {
  const root = join(parent, "root");
  await mkdir(join(root, "etc"), { recursive: true });
  await mkdir(join(root, "bin"));
  await writeFile(join(root, "etc/os-release"), "ID=test\n");
  await symlink("../etc/os-release", join(root, "bin/release"));
  const first = tarOf(root);
  await writeFile(join(root, "bin/app"), randomBytes(3_000_000), { mode: 0o755 });
  const second = tarOf(root);
  await writeFile(join(root, "etc/.wh.os-release"), "");
  const third = tarOf(root);
  const layers = [first, second, third];
  const made = makeImage({
    isIndexed: false,
    layers: layers.map(({ compressed }) => compressed),
    config: { rootfs: { type: "layers", diff_ids: layers.map(({ diffId }) => diffId) } },
  });
  const entry = { mediaType: TYPES.manifest, digest: made.top, size: made.blobs.get(made.top)?.length };
  const platform = { os: "linux", architecture: "amd64" };
  return putInFront(made, TYPES.index, {
    schemaVersion: 2,
    mediaType: TYPES.index,
    manifests: [{ ...entry, platform }],
  });
}

async function expectPull(input: Omit<PullInput, "directory" | "reference">): Promise<void> {
  await withDirectory(async (into) => {
    const pulled = await pullImage({ reference: REFERENCE, directory: into, limits: QUICK_LIMITS, ...input });
    expect(pulled.reference).toBe(`${REFERENCE}@${image.top}`);
    expect(pulled.layers).toHaveLength(3);
    for (const { path, digest, diffId } of pulled.layers) {
      expect(sha256(await readFile(path))).toBe(digest);
      expect(sha256(execFileSync("gzip", ["-dc", path], { maxBuffer: 2 ** 30 }))).toBe(diffId);
    }
  });
}

const failureOf = (input: Partial<PullInput>) =>
  withDirectory((into) =>
    pullImage({ reference: REFERENCE, directory: into, limits: QUICK_LIMITS, ...input }),
  ).then(
    () => undefined,
    (error) => error,
  );

test("an open registry without TLS gives its image", async () => {
  await expectPull({ dial: open.dial, isInsecure: true });
});

test("a registry does not have other images and tags", async () => {
  const { dial } = open;
  for (const reference of [
    `${HOST}/${REPOSITORY}:2.0`,
    `${HOST}/other:1.0`,
    `${HOST}/${REPOSITORY}@${sha256(Buffer.from("x"))}`,
  ])
    expect(await failureOf({ dial, isInsecure: true, reference })).toMatchObject({ code: "not_found" });
});

test("a layer whose connection breaks is continued", async () => {
  await using proxy = await breakingProxy(open.port, 1_500_000);
  await expectPull({ dial: proxy.dial, isInsecure: true });
  expect(proxy.broken()).toBe(true);
});

test("a private registry gives its image for its credential alone", async () => {
  await using registry = await startRegistry({ directory, host: HOST, auth: "htpasswd" });
  const { ca, dial } = registry;
  await expectPull({ ca, dial, credential: CREDENTIAL });
  await pingRegistry({ registry: HOST, ca, dial, credential: CREDENTIAL });
  const wrong = { ...CREDENTIAL, password: "open barley" };
  for (const credential of [undefined, wrong]) {
    expect(await failureOf({ ca, dial, credential })).toMatchObject({ code: "authentication_failed" });
    const ping = pingRegistry({ registry: HOST, ca, dial, credential });
    await expect(ping).rejects.toMatchObject({ code: "authentication_failed" });
  }
});

test("a registry with a token service gives its image for a token of it", async () => {
  const signer = await makeAuthority({ name: "Tokens", notAfter: new Date(Date.now() + 3_600_000) });
  const [service, issuer] = ["a test's registry", "a test"];
  await using standIn = await StandIn.start();
  const basic = `Basic ${Buffer.from(`${USER.username}:${USER.password}`).toString("base64")}`;
  standIn.serve(AUTH, tokenService({ signer, issuer, basic }));
  const realm = `https://${AUTH}/token`;
  const auth = { realm, service, issuer, certificate: signer.certificatePem };
  await using registry = await startRegistry({ directory, host: HOST, auth });
  const ca = `${registry.ca}${standIn.ca}`;
  const dial: Dial = (host, port, signal) =>
    (host === AUTH ? standIn.dial : registry.dial)(host, port, signal);
  await expectPull({ ca, dial, credential: CREDENTIAL });
  await pingRegistry({ registry: HOST, ca, dial, credential: CREDENTIAL });
  for (const credential of [undefined, { ...CREDENTIAL, password: "x" }])
    expect(await failureOf({ ca, dial, credential })).toMatchObject({ code: "authentication_failed" });
  const asked = standIn.requests.map(({ path }) => new URL(path, "https://x").searchParams.get("scope"));
  expect(new Set(asked)).toEqual(new Set([`repository:${REPOSITORY}:pull`, null]));
});

/** Signs tokens for the rights that are asked for, if the credential is right. */
function tokenService({
  signer,
  issuer,
  basic,
}: {
  signer: { certificatePem: string; keyPem: string };
  issuer: string;
  basic: string;
}): RequestListener {
  return (request, response) => {
    if (request.headers.authorization !== basic) return void response.writeHead(401).end("{}");
    const asked = new URL(request.url ?? "", "https://x").searchParams;
    const [type, name, actions = ""] = asked.get("scope")?.split(":") ?? [];
    const now = Math.floor(Date.now() / 1000);
    const claims = {
      iss: issuer,
      sub: "robot",
      aud: asked.get("service"),
      exp: now + 300,
      nbf: now - 10,
      iat: now,
      jti: randomBytes(8).toString("hex"),
      access: name === undefined ? [] : [{ type, name, actions: actions.split(",") }],
    };
    const x5c = [new X509Certificate(signer.certificatePem).raw.toString("base64")];
    const parts = [{ typ: "JWT", alg: "ES256", x5c }, claims].map((part) =>
      Buffer.from(JSON.stringify(part)).toString("base64url"),
    );
    const key = { key: createPrivateKey(signer.keyPem), dsaEncoding: "ieee-p1363" as const };
    const signature = sign("sha256", Buffer.from(parts.join(".")), key).toString("base64url");
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ token: [...parts, signature].join(".") }));
  };
}

/** Passes connections on, and breaks one that has brought this many bytes, once. */
async function breakingProxy(port: number, bytes: number) {
  let isBroken = false;
  const server = createServer((client) => {
    const upstream = connect(port, "127.0.0.1");
    let seen = 0;
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const)
      from.on("error", () => to.destroy()).on("close", () => to.destroy());
    client.pipe(upstream);
    upstream.pipe(client);
    upstream.on("data", (chunk) => {
      seen += chunk.length;
      if (isBroken || seen < bytes) return;
      isBroken = true;
      client.destroy();
    });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port: own } = server.address() as AddressInfo;
  const dial: Dial = async (_, __, signal) => {
    const socket = connect(own, "127.0.0.1");
    await once(socket, "connect", { signal });
    return socket;
  };
  return {
    dial,
    broken: () => isBroken,
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}
