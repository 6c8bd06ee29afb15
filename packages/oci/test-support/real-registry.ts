/** Debian's container registry as a process of a test (scripts/fetch-registry), over a directory of its own or a shared one. */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { type KeyPair, makeAuthority, signServer } from "@vivarium/kit/certificates";
import { freePort } from "@vivarium/kit/test-support/free-port";
import { endServer, fetchedProgram, untilAnswering } from "@vivarium/kit/test-support/server-process";
import type { Dial } from "../src/dial.ts";
import { type MadeImage, sha256 } from "./image.ts";

/** User and password, and the line for them that `htpasswd -B` writes. */
export const USER = { username: "robot", password: "open sesame" };
const HTPASSWD = "robot:$2y$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n";
const DAY_MS = 24 * 3_600_000;

export interface TokenService {
  realm: string;
  service: string;
  issuer: string;
  /** Certificate (PEM) of the key that signs tokens. */
  certificate: string;
}

export interface RealRegistryOptions {
  /** Where the registry keeps its content, and this support its files. */
  directory: string;
  /** With a certificate for this name; otherwise by plain HTTP. */
  host?: string;
  auth?: "htpasswd" | TokenService;
}

export interface RealRegistry extends AsyncDisposable {
  port: number;
  /** Authority of its certificate. */
  ca: string;
  dial: Dial;
}

const programPath = () => fetchedProgram("docker-registry", "scripts/fetch-registry");

export async function startRegistry(options: RealRegistryOptions): Promise<RealRegistry> {
  const { directory, host } = options;
  const authority = host === undefined ? undefined : await authorityOf(directory, host);
  const port = await freePort();
  const config = join(directory, `config-${port}.json`);
  // JSON is YAML, too.
  await writeFile(config, JSON.stringify(await configOf(options, port)));
  const child = spawn(programPath(), ["serve", config], { stdio: ["ignore", "ignore", "pipe"], env: {} });
  let log = "";
  child.stderr?.on("data", (chunk) => {
    log += chunk;
  });
  const dial: Dial = async (_, __, signal) => {
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect", { signal });
    return socket;
  };
  const stop = async () => await endServer(child);
  try {
    await untilAnswering(child, { port, host: "127.0.0.1" }, () => log);
  } catch (error) {
    await stop();
    throw error;
  }
  return { port, ca: authority?.certificatePem ?? "", dial, [Symbol.asyncDispose]: stop };
}

async function configOf({ directory, host, auth }: RealRegistryOptions, port: number): Promise<object> {
  const tls = host !== undefined && {
    tls: { certificate: join(directory, "server.pem"), key: join(directory, "server.key") },
  };
  return {
    version: 0.1,
    log: { level: "warn", accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: join(directory, "content") } },
    http: { addr: `127.0.0.1:${port}`, ...tls },
    ...(auth && { auth: await authOf(directory, auth) }),
  };
}

async function authOf(directory: string, auth: "htpasswd" | TokenService): Promise<object> {
  if (auth === "htpasswd") {
    const path = join(directory, "htpasswd");
    await writeFile(path, HTPASSWD);
    return { htpasswd: { realm: "a test", path } };
  }
  const rootcertbundle = join(directory, "tokens.pem");
  await writeFile(rootcertbundle, auth.certificate);
  return { token: { realm: auth.realm, service: auth.service, issuer: auth.issuer, rootcertbundle } };
}

async function authorityOf(directory: string, host: string): Promise<KeyPair> {
  const authority = await makeAuthority({ name: "Registry", notAfter: new Date(Date.now() + DAY_MS) });
  const { certificatePem, keyPem } = await signServer(authority, { host, lifeMs: DAY_MS });
  await writeFile(join(directory, "server.pem"), certificatePem);
  await writeFile(join(directory, "server.key"), keyPem);
  return authority;
}

/** Uploads an image under a tag, and its documents by digest. The registry must not want a credential. */
export async function push(port: number, repository: string, tag: string, image: MadeImage): Promise<void> {
  const base = `http://127.0.0.1:${port}/v2/${repository}`;
  const documents = [...image.blobs].filter(([digest]) => isDocument(image, digest));
  for (const [digest, bytes] of image.blobs) {
    if (documents.some(([document]) => document === digest)) continue;
    const begun = await fetch(`${base}/blobs/uploads/`, { method: "POST" });
    const to = new URL(begun.headers.get("location") ?? "", base);
    to.searchParams.set("digest", digest);
    await mustSucceed(await fetch(to, { method: "PUT", body: new Uint8Array(bytes) }));
  }
  for (const [digest, bytes] of documents) {
    for (const name of digest === image.top ? [digest, tag] : [digest]) {
      const headers = { "content-type": image.types.get(digest) ?? "" };
      const body = new Uint8Array(bytes);
      await mustSucceed(await fetch(`${base}/manifests/${name}`, { method: "PUT", headers, body }));
    }
  }
}

function isDocument(image: MadeImage, digest: string): boolean {
  return /(manifest|index|list)\.v\d/.test(image.types.get(digest) ?? "");
}

async function mustSucceed(response: Response): Promise<void> {
  if (!response.ok) throw new Error(`${response.url}: ${response.status} ${await response.text()}`);
}

export interface TarLayer {
  /** The digest of the tar itself. */
  diffId: string;
  compressed: Buffer;
}

/** Layers as tools make them: tar files of a directory. */
export function tarOf(directory: string): TarLayer {
  const tar = execFileSync("tar", ["--numeric-owner", "-c", "-C", directory, "."], { maxBuffer: 2 ** 30 });
  const compressed = execFileSync("gzip", ["-c"], { input: tar, maxBuffer: 2 ** 30 });
  return { diffId: sha256(tar), compressed };
}
