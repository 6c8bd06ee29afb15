/**
 * Rows about Connections: requests through the gateway that end TLS, are judged, get a credential and are searched on their way
 * back, beside nginx, which ends TLS and adds a header, and beside the gateway's unread way. No machine is involved, so that
 * an emulated guest's processor does not hide the rest.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { type KeyPair, makeAuthority, signServer } from "@vivarium/kit/certificates";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { eventually } from "../support/eventually.ts";
import type { GatewayFacts, GatewaySettings } from "./connection-gateway.ts";
import { download, latencies, saturate, type Target } from "./http-load.ts";
import { cpuSeconds } from "./process-costs.ts";
import { percentile, type Row, row } from "./samples.ts";

const HOST = "api.example";
const PREFIX = "127.31.90";
const NGINX_ADDRESS = `${PREFIX}.100`;
const DAY_MS = 24 * 3_600_000;
const RATE = 100;
const MIB = 1024 * 1024;

export interface ConnectionEffort {
  seconds: number;
  mib: number;
  sessions: number;
}

interface Way {
  name: string;
  target: Target;
  pid: number;
}

export async function connectionRows({ seconds, mib, sessions }: ConnectionEffort): Promise<Row[]> {
  const undo = new UndoStack();
  try {
    const folder = mkdtempSync(join(tmpdir(), "viv-bench-"));
    undo.push("folder", () => rmSync(folder, { recursive: true }));
    const roots = await makeAuthority({ name: "roots", notAfter: new Date(Date.now() + DAY_MS) });
    const pair = await signServer(roots, { host: HOST, lifeMs: DAY_MS });
    const originPort = await startOrigin(undo, folder, pair);
    const gateway = await startGateway(undo, originPort, roots);
    const nginx = await startNginx(undo, folder, { originPort, roots, pair });
    const ways = [...nginx, ...gateway.ways];
    const rows: Row[] = [];
    for (const way of ways) rows.push(...(await rowsOf(way, ways, { seconds, mib }, rows)));
    return [...rows, await gateway.memoryRow(sessions)];
  } finally {
    await undo.unwind();
  }
}

const perSecond = (name: string) => `Connections: ${name}, requests per CPU second`;

async function rowsOf(
  { name, target, pid }: Way,
  [floor]: Way[],
  { seconds, mib }: Pick<ConnectionEffort, "seconds" | "mib">,
  before: readonly Row[],
): Promise<Row[]> {
  const load = await saturate(target, [pid], seconds);
  const values = await latencies(target, RATE, seconds);
  const spent = cpuSeconds([pid]);
  const tookS = await download({ ...target, url: `${target.url}bytes/${mib * MIB}` });
  const cpu = cpuSeconds([pid]) - spent;
  const first = before.find((one) => one.name === perSecond(floor?.name ?? ""));
  const share = first ? `${(load.requestsPerCpuSecond / first.p50).toFixed(2)} × ${floor?.name}, ` : "";
  return [
    row(
      perSecond(name),
      "req",
      [load.requestsPerCpuSecond],
      `${share}${Math.round(load.requestsPerSecond)}/s in all`,
    ),
    row(`Connections: ${name} at ${RATE}/s`, "ms", values, `p99 ${percentile(values, 99).toFixed(1)} ms`),
    row(
      `Connections: ${name}, one answer of ${mib} MiB`,
      "MiB/s",
      [mib / tookS],
      `${((cpu * 1000) / mib).toFixed(1)} ms of CPU per MiB`,
    ),
  ];
}

async function startOrigin(undo: UndoStack, folder: string, pair: KeyPair): Promise<number> {
  const file = join(folder, "pair.json");
  writeFileSync(file, JSON.stringify({ cert: pair.certificatePem, key: pair.keyPem }));
  const { child, lines } = startProgram(undo, join(import.meta.dirname, "connection-origin.ts"), [
    file,
    `${PREFIX}.80`,
  ]);
  child.stdin?.end();
  return Number(await nextLine(lines));
}

async function startGateway(undo: UndoStack, originPort: number, roots: KeyPair) {
  const settings: GatewaySettings = { prefix: PREFIX, host: HOST, originPort, roots: roots.certificatePem };
  const { child, lines } = startProgram(undo, join(import.meta.dirname, "connection-gateway.ts"), [
    JSON.stringify(settings),
  ]);
  const facts = JSON.parse(await nextLine(lines)) as GatewayFacts;
  const pid = child.pid as number;
  const targetAt = (address: string, ca: string): Target => ({
    url: `https://${address}:${GATEWAY_PORTS.tls}/`,
    tls: { ca, servername: HOST },
    headers: { host: HOST },
  });
  const rssWith = async (sessions: number) => {
    child.stdin?.write(`${sessions}\n`);
    return Number(await nextLine(lines));
  };
  return {
    ways: [
      { name: "gateway, unread", target: targetAt(facts.unread, roots.certificatePem), pid },
      { name: "gateway, with the credential", target: targetAt(facts.bound, facts.ca), pid },
    ],
    async memoryRow(sessions: number): Promise<Row> {
      const before = await rssWith(0);
      const grown = (await rssWith(sessions)) - before;
      return row("Connections: gateway's memory of a session with ten of them", "KiB", [
        grown / 1024 / sessions,
      ]);
    },
  };
}

/** Without nginx on this host its rows are left out. */
async function startNginx(
  undo: UndoStack,
  folder: string,
  { originPort, roots, pair }: { originPort: number; roots: KeyPair; pair: KeyPair },
): Promise<Way[]> {
  const program = ["/usr/sbin/nginx", "nginx"].find((one) => spawnSync(one, ["-v"]).status === 0);
  if (program === undefined) {
    process.stderr.write("nginx is not installed, so its rows are left out: apt install nginx-light\n");
    return [];
  }
  const at = (name: string, text: string) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const config = at(
    "nginx.conf",
    `
daemon off; master_process off; worker_processes 1; pid ${folder}/nginx.pid; error_log ${folder}/error.log;
events { worker_connections 1024; }
http {
  access_log off; keepalive_requests 1000000;
  client_body_temp_path ${folder}/b; proxy_temp_path ${folder}/p; fastcgi_temp_path ${folder}/f;
  uwsgi_temp_path ${folder}/u; scgi_temp_path ${folder}/s;
  upstream origin { server ${PREFIX}.80:${originPort}; keepalive 32; keepalive_requests 1000000; }
  server {
    listen ${NGINX_ADDRESS}:8443 ssl; server_name ${HOST};
    ssl_certificate ${at("cert.pem", pair.certificatePem)}; ssl_certificate_key ${at("key.pem", pair.keyPem)};
    location / {
      proxy_pass https://origin; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host ${HOST}; proxy_set_header Authorization "Bearer canary"; proxy_buffering off;
      proxy_ssl_server_name on; proxy_ssl_name ${HOST}; proxy_ssl_verify on;
      proxy_ssl_trusted_certificate ${at("roots.pem", roots.certificatePem)};
    }
  }
}`,
  );
  const child = spawn(program, ["-c", config, "-p", folder, "-e", join(folder, "error.log")], {
    stdio: "ignore",
  });
  undo.push("nginx", () => endOf(child));
  const target = {
    url: `https://${NGINX_ADDRESS}:8443/`,
    tls: { ca: roots.certificatePem, servername: HOST },
    headers: { host: HOST },
  };
  await eventually(() => latencies(target, 1, 1), 10_000);
  return [{ name: "nginx", target, pid: child.pid as number }];
}

function startProgram(
  undo: UndoStack,
  program: string,
  args: string[],
): { child: ChildProcess; lines: Interface } {
  const argv = ["--no-warnings", "--expose-gc", program, ...args];
  const child = spawn(process.execPath, argv, { stdio: ["pipe", "pipe", "inherit"] });
  undo.push(program, () => endOf(child));
  return { child, lines: createInterface({ input: child.stdout as NodeJS.ReadableStream }) };
}

async function nextLine(lines: Interface): Promise<string> {
  const [line] = (await once(lines, "line")) as [string];
  return line;
}

async function endOf(child: ChildProcess): Promise<void> {
  const ended = child.exitCode === null ? once(child, "exit") : undefined;
  child.kill();
  await ended;
}
