/** Programs that guests use, each with its own TLS library and its own idea of HTTP. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type BoundWorld, HOST, SECRET, startBoundWorld, valuesIn } from "../../test-support/bound-world.ts";

const run = promisify(execFile);
const has = (program: string) => existsSync(`/usr/bin/${program}`);
let world: BoundWorld;
let folder: string;
let ca: string;

beforeAll(async () => {
  world = await startBoundWorld("127.31.50");
  folder = await mkdtemp(join(tmpdir(), "clients-"));
  ca = join(folder, "ca.pem");
  await writeFile(ca, world.ca.certificatePem);
});

beforeEach(async () => {
  await world.bind();
  world.origin.received.length = 0;
});

afterAll(async () => {
  await rm(folder, { recursive: true });
  await world.close();
});

/** The origin received one request, with the credential. */
function expectInjected(version: string, method: string): void {
  expect(world.origin.received).toMatchObject([{ httpVersion: version, method }]);
  expect(valuesIn(world.origin.received[0] as never, "authorization")).toEqual([`Bearer ${SECRET}`]);
}

describe.skipIf(!has("curl"))("curl", () => {
  const curl = async (...args: string[]) => {
    const to = `${HOST}:443:${world.hosts[0]}:${GATEWAY_PORTS.tls}`;
    const { stdout } = await run("curl", [
      "-sS",
      "--max-time",
      "20",
      "--cacert",
      ca,
      "--connect-to",
      to,
      ...args,
    ]);
    return stdout;
  };

  test.each([
    ["--http1.1", "1.1"],
    ["--http2", "2.0"],
  ])("with %s gets an answer", async (option, version) => {
    expect(await curl(option, "-H", "Authorization: Bearer own", `https://${HOST}/v1/a`)).toBe("ok");
    expectInjected(version, "GET");
  });

  test.each([
    ["--http1.1", "1.1"],
    ["--http2", "2.0"],
  ])("with %s uploads a file, whether it waits for 100 Continue or not", async (option, version) => {
    const file = join(folder, "upload");
    await writeFile(file, Buffer.alloc(2_000_000, "x"));
    for (const expect100 of ["Expect: 100-continue", "Expect:"]) {
      world.origin.received.length = 0;
      expect(await curl(option, "-H", expect100, "--data-binary", `@${file}`, `https://${HOST}/v1/a`)).toBe(
        "ok",
      );
      expectInjected(version, "POST");
      expect(world.origin.received[0]?.body.length).toBe(2_000_000);
    }
  });

  test("sees the refusal of a path", async () => {
    expect(await curl("--path-as-is", `https://${HOST}/a/../b`)).toContain("connection_request_invalid");
    expect(world.origin.received).toEqual([]);
  });
});

describe.skipIf(!has("python3"))("Python", () => {
  test("with its standard library gets an answer", async () => {
    const program = `
import http.client, socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
context.verify_flags |= ssl.VERIFY_X509_STRICT
raw = socket.create_connection((sys.argv[2], int(sys.argv[3])))
connection = http.client.HTTPSConnection("${HOST}")
connection.sock = context.wrap_socket(raw, server_hostname="${HOST}")
for path in ("/a", "/b"):
    connection.request("POST", path, body=b"body")
    print(connection.getresponse().read().decode())
`;
    const args = ["-c", program, ca, world.hosts[0], String(GATEWAY_PORTS.tls)];
    const { stdout } = await run("python3", args);
    expect(stdout).toBe("ok\nok\n");
    expect(world.origin.received).toMatchObject([{ body: "body" }, { url: "/b" }]);
  });
});

describe.skipIf(!has("openssl"))("OpenSSL", () => {
  test.each([["-tls1_2"], ["-tls1_3"]])("verifies the chain strictly with %s", async (version) => {
    const to = `${world.hosts[0]}:${GATEWAY_PORTS.tls}`;
    const strict = ["-x509_strict", "-verify_return_error", "-verify_hostname", HOST, "-CAfile", ca];
    const call = run("openssl", [
      "s_client",
      "-connect",
      to,
      "-servername",
      HOST,
      version,
      ...strict,
      "-ign_eof",
    ]);
    call.child.stdin?.end(`GET /a HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`);
    const { stdout } = await call;
    expect(stdout).toContain("Verify return code: 0 (ok)");
    expect(stdout).toContain("HTTP/1.1 200 OK");
    expectInjected("1.1", "GET");
  });

  test("cannot speak an older version of TLS", async () => {
    const to = `${world.hosts[0]}:${GATEWAY_PORTS.tls}`;
    const call = run("openssl", ["s_client", "-connect", to, "-servername", HOST, "-tls1_1"]);
    call.child.stdin?.end();
    await expect(call).rejects.toThrow();
    expect(world.origin.received).toEqual([]);
  });
});
