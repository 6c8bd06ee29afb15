/** A stub of the service with scripted answers, and a runner of command lines against it. */
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach } from "vitest";
import { readConfig } from "../src/config.ts";
import { runCommandLine } from "../src/program.ts";

export interface Seen {
  method: string | undefined;
  url: string | undefined;
  key: string | undefined;
  body: unknown;
}
type Answer = (request: Seen, response: ServerResponse) => void;

/** Ids of sessions. A reference in the form of an id causes no request. */
export const S1 = "s1aaaaaaaaaaaaaaaaaaa";
export const S2 = "s2bbbbbbbbbbbbbbbbbbb";

export let dir: string;
const cleanups: (() => void)[] = [];

/** Gives each test of the calling file a data directory, `dir`, and closes its servers. */
export function inOwnDirectories(): void {
  beforeEach(async () => {
    dir = await mkdtemp(path.join(tmpdir(), "viv-cli-"));
    await mkdir(path.join(dir, "control"));
    await writeFile(path.join(dir, "control", "bootstrap.key"), "viv_local\n");
  });
  afterEach(async () => {
    stopServing();
    await rm(dir, { recursive: true, force: true });
  });
}

/** Closes the servers of this test: their URLs then refuse connections. */
export function stopServing(): void {
  for (const cleanup of cleanups.splice(0)) cleanup();
}

/** Starts a server on a free port; `seen` has its requests in order, without health checks. */
export async function serve(answer: Answer) {
  const seen: Seen[] = [];
  const server = createServer(async (request: IncomingMessage, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const { method, url } = request;
    const entry = { method, url, key: request.headers.authorization, body: body && JSON.parse(body) };
    if (url === "/v1/healthz") return respond(response, 200, { status: "ok", isolation: "kvm" });
    seen.push(entry);
    answer(entry, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanups.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

/** Runs one command line against the server; returns its exit code and everything it printed. */
export async function viv(
  url: string,
  argv: string[],
  env: Record<string, string> = {},
  screen: {
    isInteractive?: boolean;
    columns?: number;
    onOut?: (out: string) => void;
    onNote?: (line: string) => void;
    /** The human's answer to a question; without it no question can be asked. */
    answer?: string;
  } = {},
) {
  const printed = { out: "", err: "" };
  const terminal = {
    isInteractive: screen.isInteractive ?? false,
    size: () => ({ columns: screen.columns ?? 80, rows: 24 }),
    out: (line: string) => {
      printed.out += `${line}\n`;
      screen.onOut?.(printed.out);
    },
    note: (line: string) => {
      printed.err += `${line}\n`;
      screen.onNote?.(line);
    },
    canAsk: screen.answer !== undefined,
    ask: async (question: string) => {
      printed.err += `${question}\n`;
      return screen.answer ?? "";
    },
    askHidden: async (question: string) => {
      printed.err += `${question}\n`;
      return screen.answer ?? "";
    },
    write: async (stream: "stdout" | "stderr", data: Uint8Array) => {
      printed[stream === "stdout" ? "out" : "err"] += Buffer.from(data).toString();
    },
  };
  const config = readConfig({ VIV_URL: url, VIV_DATA_DIR: dir, ...env });
  return { code: await runCommandLine(argv, { config, terminal }), ...printed };
}

export function respond(response: ServerResponse, status: number, body: unknown, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

export function stream(response: ServerResponse, output: string, exit: object) {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(`event: stdout\ndata: ${Buffer.from(output).toString("base64")}\n\n`);
  response.end(`event: exit\ndata: ${JSON.stringify({ timed_out: false, duration_ms: 5, ...exit })}\n\n`);
}
