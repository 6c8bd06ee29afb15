import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer, get, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { makeAuthority } from "@vivarium/kit/certificates";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../test-support/in-time.ts";
import { readConfig } from "./config.ts";

const MAIN = fileURLToPath(new URL("main.ts", import.meta.url));
const NOBODY = 65_534;
let folder: string;
let node: Server;
let streams: ServerResponse[];
let gateway: ChildProcess | undefined;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "gateway-test-"));
  await chmod(folder, 0o755);
  streams = [];
  node = createServer((_request, response) => {
    response.writeHead(200).flushHeaders();
    streams.push(response);
  });
  node.listen(path.join(folder, "node.sock"));
  await once(node, "listening");
  await chmod(path.join(folder, "node.sock"), 0o666);
});

afterEach(async () => {
  gateway?.kill("SIGKILL");
  node.closeAllConnections();
  node.close();
  await rm(folder, { recursive: true });
});

function start(env: Record<string, string>): ChildProcess {
  gateway = spawn(process.execPath, [MAIN], {
    env: { VIV_GATEWAY_SOCKET: path.join(folder, "node.sock"), VIV_INGRESS_LISTEN: "127.31.5.1:0", ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  return gateway;
}

/** The highest limit that root can set for a process here. */
async function highestLimit(): Promise<number> {
  const script = "prlimit --pid $$ --nofile=262144:262144 2>/dev/null; ulimit -Hn";
  const { stdout } = await promisify(execFile)("sh", ["-c", script]);
  return Number(stdout);
}

describe.runIf(process.getuid?.() === 0)("a gateway that is started as root", () => {
  test("is its own user, for good, undumpable, without core files, and reaches its node", async () => {
    const { pid } = start({ VIV_GATEWAY_USER: "nobody" });
    await until(() => streams.length > 0);
    const status = await readFile(`/proc/${pid}/status`, "utf8");
    expect(status).toMatch(new RegExp(`^Uid:(\\t${NOBODY}){4}$`, "m"));
    expect(status).toMatch(new RegExp(`^Gid:(\\t${NOBODY}){4}$`, "m"));
    expect(status).toMatch(/^Groups:\t(65534 ?)*\s*$/m);
    expect(status).toMatch(/^CapPrm:\t0+$/m);
    expect(status).toMatch(/^CapEff:\t0+$/m);
    // The files of a process below /proc are root's when it may not be dumped.
    expect((await stat(`/proc/${pid}/environ`)).uid).toBe(0);
    expect(await readFile(`/proc/${pid}/limits`, "utf8")).toMatch(/^Max core file size\s+0\s+0\s/m);
  });

  test("may open many connections, as far as the host lets it", async () => {
    const { pid } = start({ VIV_GATEWAY_USER: "nobody" });
    await until(() => streams.length > 0);
    const limits = await readFile(`/proc/${pid}/limits`, "utf8");
    const [, soft, hard] = /^Max open files\s+(\d+)\s+(\d+)/m.exec(limits) ?? [];
    expect(Number(soft)).toBe(Number(hard));
    expect(Number(soft)).toBe(await highestLimit());
  });

  test("says which user is missing, and ends", async () => {
    const child = start({ VIV_GATEWAY_USER: "no-such-user" });
    let output = "";
    child.stderr?.on("data", (chunk) => {
      output += chunk;
    });
    // Its last words may come behind its exit.
    const [code] = await once(child, "close");
    expect(code).toBe(1);
    expect(output).toMatch(/no system user "no-such-user".*VIV_GATEWAY_USER/);
  });
});

test("a gateway ends with its supervisor", async () => {
  const child = start({ VIV_GATEWAY_USER: "", VIV_SUPERVISED: "1" });
  await until(() => streams.length > 0);
  child.stdin?.end();
  expect(await once(child, "exit")).toEqual([0, null]);
});

test("a gateway whose previews' port is taken follows its tables, and serves previews once the port is free", async () => {
  const taken = createTcpServer();
  taken.listen(0, "127.31.5.1");
  await once(taken, "listening");
  const { port } = taken.address() as AddressInfo;
  const listen = `127.31.5.1:${port}`;
  const child = start({ VIV_GATEWAY_USER: "", VIV_INGRESS_LISTEN: listen });
  let output = "";
  child.stdout?.on("data", (chunk) => {
    output += chunk;
  });
  await until(() => streams.length > 0);
  await until(() => /EADDRINUSE.*previews cannot start/.test(output));
  taken.close();
  await until(() => output.includes("previews are served"));
  const [response] = await once(get(`http://${listen}/`), "response");
  expect(response.statusCode).toBe(404);
  expect(child.exitCode).toBeNull();
});

test("a gateway without a usable certificate follows its tables, and says what is wrong", async () => {
  const files = { VIV_INGRESS_TLS_CERT: "/nowhere/c.pem", VIV_INGRESS_TLS_KEY: "/nowhere/k.pem" };
  const child = start({ VIV_GATEWAY_USER: "", ...files });
  let output = "";
  child.stdout?.on("data", (chunk) => {
    output += chunk;
  });
  await until(() => streams.length > 0);
  await until(() => /\/nowhere\/c\.pem.*previews cannot start/.test(output));
  expect(child.exitCode).toBeNull();
});

describe("the configuration", () => {
  test("has a value for everything", () => {
    expect(readConfig({ VIV_DATA_DIR: "/data" })).toEqual({
      nodeSocket: "/data/run/gateway.sock",
      user: "vivarium-gateway",
      logLevel: "info",
      isSupervised: false,
      connectionRoots: [],
      previews: { listen: { host: "127.0.0.1", port: 7401 }, nodeDomain: "localhost", secure: false },
    });
  });

  test("takes what is set", () => {
    const env = {
      ...{ VIV_INGRESS_LISTEN: "[::1]:443", VIV_NODE_DOMAIN: "Previews.Example.net", VIV_GATEWAY_USER: "" },
      ...{ VIV_INGRESS_TLS_CERT: "/c.pem", VIV_INGRESS_TLS_KEY: "/k.pem", VIV_INGRESS_PUBLIC_PORT: "8443" },
    };
    expect(readConfig(env)).toMatchObject({
      user: "",
      previews: {
        ...{
          listen: { host: "::1", port: 443 },
          nodeDomain: "previews.example.net",
          secure: true,
          publicPort: 8443,
        },
        tls: { certFile: "/c.pem", keyFile: "/k.pem" },
      },
    });
  });

  test("names the proxies that are trusted, in one list with commas", () => {
    const env = { VIV_INGRESS_TRUSTED_PROXIES: "10.0.0.5, fd00::/8,," };
    expect(readConfig(env).previews.trustedProxies).toEqual(["10.0.0.5", "fd00::/8"]);
    expect(readConfig({ VIV_INGRESS_TRUSTED_PROXIES: "" }).previews.trustedProxies).toBeUndefined();
  });

  test("has the certificates of a file of authorities", async () => {
    const authority = await makeAuthority({ name: "ours", notAfter: new Date(Date.now() + 60_000) });
    const file = path.join(folder, "roots.pem");
    await writeFile(file, `# ours\n${authority.certificatePem}${authority.certificatePem}`);
    const roots = readConfig({ VIV_CONNECTION_ROOTS: file }).connectionRoots;
    expect(roots.map((pem) => pem.trim())).toEqual(Array(2).fill(authority.certificatePem.trim()));
  });

  test("names an authority that makes the certificate", () => {
    const env = {
      ...{ VIV_INGRESS_TLS_CERT: "/c.pem", VIV_INGRESS_TLS_KEY: "/k.pem" },
      ...{ VIV_INGRESS_ACME_DIRECTORY: "https://ca/dir", VIV_INGRESS_ACME_DNS_HOOK: "/hook" },
      ...{ VIV_INGRESS_ACME_ACCOUNT_KEY: "/account.pem", VIV_INGRESS_ACME_EMAIL: "a@example.net" },
    };
    expect(readConfig(env).previews.tls?.acme).toEqual({
      ...{ directoryUrl: "https://ca/dir", dnsHook: "/hook", accountKeyFile: "/account.pem" },
      email: "a@example.net",
    });
  });

  test.each<[Record<string, string>, RegExp]>([
    [{ VIV_INGRESS_LISTEN: "7401" }, /VIV_INGRESS_LISTEN is "7401"; expected <address>:<port>/],
    [{ VIV_INGRESS_LISTEN: "127.0.0.1:70000" }, /port "70000"/],
    [{ VIV_INGRESS_TLS_CERT: "/c.pem" }, /VIV_INGRESS_TLS_KEY/],
    [{ VIV_INGRESS_PUBLIC_PORT: "x" }, /VIV_INGRESS_PUBLIC_PORT/],
    [{ VIV_INGRESS_ACME_DIRECTORY: "https://ca/dir" }, /VIV_INGRESS_TLS_CERT/],
    [
      { VIV_CONNECTION_ROOTS: "/nowhere.pem" },
      /VIV_CONNECTION_ROOTS names \/nowhere.pem, which cannot be read/,
    ],
    [{ VIV_CONNECTION_ROOTS: "/etc/hostname" }, /VIV_CONNECTION_ROOTS .* no certificate/],
    [{ VIV_INGRESS_TRUSTED_PROXIES: "10.0.0.5,proxy" }, /VIV_INGRESS_TRUSTED_PROXIES: "proxy" is no address/],
    [
      { VIV_INGRESS_ACME_DIRECTORY: "https://ca/dir", VIV_INGRESS_TLS_CERT: "/c", VIV_INGRESS_TLS_KEY: "/k" },
      /VIV_INGRESS_ACME_DNS_HOOK/,
    ],
  ])("names what is wrong: %j", (env, output) => {
    expect(() => readConfig(env)).toThrow(output);
  });
});
