/**
 * A test server for code contexts, whose guest is a temporary directory of this host. Files are written there; commands
 * and processes run on this host, with the guest's paths replaced. Implements only the calls that code contexts need.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { onTestFinished } from "vitest";
import { bodyOf, json, serve } from "./server.ts";

interface Named {
  name: string;
  child: ChildProcess;
  stderr: string;
}

export async function startGuest() {
  const root = await mkdtemp(join(tmpdir(), "sdk-guest-"));
  const named = new Map<string, Named>();
  const inGuest = (path: string) =>
    path.replace(/^\/workspace/, root).replace(/^\/tmp\/\.vivarium-code/, join(root, "sockets"));
  const requests: string[] = [];
  const harness = await serve(async (request, response): Promise<void> => {
    const { pathname } = new URL(request.url ?? "", "http://guest");
    requests.push(`${request.method} ${pathname.replace("/v1/sessions/s1/", "")}`);
    const text = (await bodyOf(request)).toString();
    const body = text === "" ? {} : JSON.parse(text);
    if (pathname.endsWith("/exec")) return exec(body.command.map(inGuest), root, response);
    if (pathname.endsWith("/files/batch")) return json(response, await write(body.files, inGuest));
    processes(named, request, response, { pathname, body, root, inGuest });
  });
  onTestFinished(async () => {
    for (const { child } of named.values()) await end(child);
    await rm(root, { recursive: true });
  });
  return { ...harness, root, requests, named };
}

function exec(command: string[], cwd: string, response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const child = spawn(command[0] ?? "", command.slice(1), { cwd, stdio: ["ignore", "pipe", "pipe"] });
  for (const name of ["stdout", "stderr"] as const) {
    const stream = child[name];
    stream.on("data", (chunk: Buffer) => {
      if (response.write(`event: ${name}\ndata: ${chunk.toString("base64")}\n\n`)) return;
      stream.pause();
      response.once("drain", () => stream.resume());
    });
  }
  response.on("close", () => child.kill("SIGKILL"));
  child.on("error", () => response.end(exitEvent(127)));
  child.on("close", (code) => response.end(exitEvent(code ?? 137)));
}

function exitEvent(exit_code: number): string {
  return `event: exit\ndata: ${JSON.stringify({ exit_code, timed_out: false, duration_ms: 1 })}\n\n`;
}

async function write(files: { path: string; content: string }[], inGuest: (path: string) => string) {
  for (const { path, content } of files) {
    const target = inGuest(path);
    await mkdir(dirname(target), { recursive: true });
    // Renamed, as the guest's agent does, so that a file is whole or absent: contexts that start at the same time write
    // the same programs.
    const partial = `${target}.${randomUUID()}`;
    await writeFile(partial, content);
    await rename(partial, target);
  }
  return { results: files.map(({ path }) => ({ path, ok: true })), duration_ms: 1 };
}

function processes(
  named: Map<string, Named>,
  request: IncomingMessage,
  response: ServerResponse,
  asked: {
    pathname: string;
    body: { name: string; command: string[] };
    root: string;
    inGuest: (path: string) => string;
  },
): void {
  const name = /processes\/([^/]+)/.exec(asked.pathname)?.[1] ?? asked.body.name;
  const known = named.get(name);
  const refuse = (status: number, code: string) => json(response, { error: `process ${name}`, code }, status);
  if (request.method === "POST") {
    if (known && isRunning(known)) refuse(409, "conflict");
    else json(response, infoOf(start(named, name, asked.body.command.map(asked.inGuest), asked.root)));
  } else if (asked.pathname.endsWith("/processes")) {
    json(response, { processes: [...named.values()].map(infoOf) });
  } else if (!known) {
    refuse(404, "not_found");
  } else if (asked.pathname.endsWith("/logs")) {
    json(response, { name, stdout: "", stderr: known.stderr });
  } else if (request.method === "GET") {
    json(response, infoOf(known));
  } else {
    void end(known.child).then(() => json(response, infoOf(known)));
  }
}

function start(named: Map<string, Named>, name: string, command: string[], cwd: string): Named {
  const child = spawn(command[0] ?? "", command.slice(1), { cwd, stdio: ["ignore", "ignore", "pipe"] });
  const started: Named = { name, child, stderr: "" };
  child.stderr?.on("data", (chunk: Buffer) => {
    started.stderr += chunk;
  });
  named.set(name, started);
  return started;
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGTERM");
  await once(child, "exit");
}

function isRunning({ child }: Named): boolean {
  return child.exitCode === null && child.signalCode === null;
}

function infoOf(one: Named) {
  return { name: one.name, state: isRunning(one) ? "running" : "exited" };
}
