import { execFile } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, createServer } from "node:tls";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { type KeyPair, makeAuthority, signServer, subjectHash } from "./certificates.ts";

const HOUR_MS = 3_600_000;
const LONG = `${"a".repeat(60)}.${"b".repeat(60)}.example`;
let authority: KeyPair;

beforeAll(async () => {
  authority = await makeAuthority({ name: "test authority", notAfter: new Date(Date.now() + 48 * HOUR_MS) });
});

/** The error of a client that trusts this authority; undefined when it accepts the server. */
async function meet(
  pair: KeyPair,
  servername: string,
  ca = authority.certificatePem,
): Promise<string | undefined> {
  const server = createServer({ cert: pair.certificatePem, key: pair.keyPem }, (socket) => socket.end());
  server.on("tlsClientError", () => {}).listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connect({ port: (server.address() as AddressInfo).port, servername, ca });
  try {
    await once(client, "secureConnect");
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code;
  } finally {
    client.destroy();
    server.close();
  }
}

describe("an authority", () => {
  test("may sign certificates and nothing else, no authority below it, and no addresses", async () => {
    const folder = await mkdtemp(join(tmpdir(), "certificates-"));
    await writeFile(join(folder, "ca.pem"), authority.certificatePem);
    const { stdout } = await promisify(execFile)("openssl", [
      ...["x509", "-in", join(folder, "ca.pem"), "-noout", "-text"],
    ]);
    await rm(folder, { recursive: true });
    expect(stdout).toMatch(/Basic Constraints: critical\s+CA:TRUE, pathlen:0\n/);
    expect(stdout).toMatch(/Key Usage: critical\s+Certificate Sign\n/);
    expect(stdout).toMatch(/Name Constraints: critical\s+Excluded:\s+IP:0\.0\.0\.0\/0\.0\.0\.0\s+IP:0:0:0:0/);
    expect(stdout).toContain("ASN1 OID: prime256v1");
  });

  test("does not vouch for what its server certificates sign", async () => {
    const below = await signServer(authority, { host: "below.example", lifeMs: 24 * HOUR_MS });
    const leaf = await signServer(below, { host: "a.example", lifeMs: 24 * HOUR_MS });
    const chain = { ...leaf, certificatePem: leaf.certificatePem + below.certificatePem };
    expect(await meet(chain, "a.example")).toBeDefined();
  });
});

describe("a server certificate", () => {
  test.each(["api.example", LONG])("is accepted for its name: %s", async (host) => {
    expect(await meet(await signServer(authority, { host, lifeMs: 24 * HOUR_MS }), host)).toBeUndefined();
  });

  test("is refused for another name, and by a client with another authority", async () => {
    const pair = await signServer(authority, { host: "api.example", lifeMs: 24 * HOUR_MS });
    expect(await meet(pair, "other.example")).toBe("ERR_TLS_CERT_ALTNAME_INVALID");
    const other = await makeAuthority({ name: "test authority", notAfter: new Date(Date.now() + HOUR_MS) });
    expect(await meet(pair, "api.example", other.certificatePem)).toBeDefined();
  });

  test("lives for as long as asked, and not longer than its authority", async () => {
    const day = new X509Certificate(
      (await signServer(authority, { host: "a.example", lifeMs: 24 * HOUR_MS })).certificatePem,
    );
    const life = day.validToDate.getTime() - day.validFromDate.getTime();
    expect(life).toBeLessThanOrEqual(24 * HOUR_MS + 1000);
    expect(life).toBeGreaterThan(23 * HOUR_MS);
    const long = await signServer(authority, { host: "a.example", lifeMs: 1000 * HOUR_MS });
    const end = new X509Certificate(long.certificatePem).validToDate;
    expect(end).toEqual(new X509Certificate(authority.certificatePem).validToDate);
  });
});

test.each(["test authority", "Vivarium 0Abc9", "A", "x".repeat(64)])(
  "the hash of an authority's name is that of OpenSSL: %s",
  async (name) => {
    const { certificatePem } = await makeAuthority({ name, notAfter: new Date(Date.now() + HOUR_MS) });
    const openssl = promisify(execFile)("openssl", ["x509", "-noout", "-subject_hash"]);
    openssl.child.stdin?.end(certificatePem);
    expect(subjectHash(name)).toBe((await openssl).stdout.trim());
  },
);
