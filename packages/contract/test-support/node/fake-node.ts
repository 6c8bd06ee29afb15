/**
 * A node without virtual machines: it answers every call of contract/node over HTTP on a unix socket. A machine's
 * contents are processes and files of this host, or scripted by a test. The suites of test/contract run against it and
 * against the real daemon.
 */
import { rmSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { findState, serveArchive } from "./archives.ts";
import {
  buildId,
  buildStatus,
  deleteBuild,
  findBuild,
  interruptBuilds,
  listBuilds,
  putBuild,
} from "./builds.ts";
import { deleteConnections, putConnections, putLease } from "./connections.ts";
import { exec, putFile } from "./exec.ts";
import { serveGuest } from "./guest.ts";
import { findMachine, listMachines, machineId } from "./machine-table.ts";
import { continueMachine, startMachine, stopMachine } from "./machines.ts";
import { networkReport, putNetwork, putPreviews } from "./network.ts";
import { answer, Refusal, refuse } from "./refusal.ts";
import { deleteSnapshot, listSnapshots, saveSnapshot, snapshotId, statusOf } from "./snapshots.ts";
import { NodeState } from "./state.ts";
import { stateKeyOf } from "./state-key.ts";
import { serveUpgrade } from "./streams.ts";
import { deleteVolume, listVolumes, putVolume, volumeId } from "./volumes.ts";

export { BuildFailed } from "./builds.ts";
export { GuestRequest } from "./guest.ts";
export { Output } from "./output.ts";
export { Refusal } from "./refusal.ts";
export { Stream, type StreamCall } from "./streams.ts";

export class FakeNode extends NodeState {
  readonly #connections = new Set<Socket>();
  readonly #upgraded = new Set<Socket>();
  #server: Server | undefined;

  async listen(): Promise<void> {
    rmSync(this.socketPath, { force: true });
    const server = createServer((request, response) => {
      serve(this, request, response).catch((error: unknown) => refuse(response, error));
    });
    // As in the real node: kept-alive connections do not time out.
    server.keepAliveTimeout = 0;
    server.on("connection", (socket: Socket) => {
      this.#connections.add(socket);
      socket.once("close", () => this.#connections.delete(socket));
    });
    server.on("upgrade", (request, socket: Socket, head) => {
      this.#upgraded.add(socket);
      socket.once("close", () => this.#upgraded.delete(socket));
      void serveUpgrade(this, { request, socket, head });
    });
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(this.socketPath, resolve));
  }

  /**
   * Simulates the death of the daemon: its socket refuses connections, its machines keep running, and it has forgotten
   * the Connections of sessions and what its builds need.
   */
  async goDown(): Promise<void> {
    const server = this.#server;
    if (!server) return;
    this.#server = undefined;
    this.connections.clear();
    // Close the listener first: a client that reconnects meanwhile would keep the server open.
    const stopped = new Promise((resolve) => server.close(resolve));
    // A server emits "close" before its connections have closed: cut-off clients could still be answered.
    const closed = [...this.#connections].map(
      (socket) => new Promise((resolve) => socket.once("close", resolve)),
    );
    server.closeAllConnections();
    this.cutStreams();
    await Promise.all([stopped, ...closed]);
    await interruptBuilds(this);
  }

  /** Simulates a restart of the daemon; machines keep running. */
  async restart(): Promise<void> {
    await this.goDown();
    await this.listen();
  }

  /** Number of terminals and tunnels that are open or opening. */
  get upgradedCount(): number {
    return this.#upgraded.size;
  }

  cutStreams(): void {
    for (const socket of this.#upgraded) socket.destroy();
  }

  async close(): Promise<void> {
    for (const machine of this.machines.values()) machine.end("the node has closed");
    await this.goDown();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

interface Call {
  /** Id of the machine, session, snapshot or wake in the path. */
  id: string;
  query: URLSearchParams;
  /** The raw body. */
  body: Buffer;
  json: unknown;
  /** The state key of the call's header. */
  stateKey: string | undefined;
  response: ServerResponse;
}

/** Returned by a handler that has answered by itself. Other results are sent as JSON, undefined as 204. */
const ANSWERED = Symbol("answered");
const CALLS: Readonly<Record<string, (node: NodeState, call: Call) => unknown>> = {
  "GET info": ({ info, previews }) => ({ ...info, previews_version: previews.version }),
  "GET machines": (node) => ({ machines: listMachines(node) }),
  "PUT machines/:id": (node, { id, json, stateKey }) => startMachine(node, machineId(id), json, stateKey),
  "GET machines/:id": (node, { id }) => findMachine(node, machineId(id)),
  "DELETE machines/:id": (node, { id }) => stopMachine(node, machineId(id)),
  "POST machines/:id/continue": (node, { id }) => continueMachine(node, machineId(id)),
  "POST machines/:id/exec": async (node, { id, json, response }) => {
    await exec(node, machineId(id), json, response);
    return ANSWERED;
  },
  "PUT machines/:id/files": async (node, { id, query, body, response }) =>
    (await putFile(node, machineId(id), { path: query.get("path") ?? "", body, response })) ?? ANSWERED,
  "PUT machines/:id/network": (node, { id, json }) => putNetwork(node, machineId(id), json),
  "GET volumes": (node) => ({ volumes: listVolumes(node) }),
  "PUT volumes/:id": (node, { id, json }) => putVolume(node, volumeId(id), json),
  "DELETE volumes/:id": (node, { id }) => deleteVolume(node, volumeId(id)),
  "GET builds": (node) => ({ builds: listBuilds(node) }),
  "PUT builds/:id": (node, { id, json }) => putBuild(node, buildId(id), json),
  "GET builds/:id": (node, { id }) => buildStatus(node, findBuild(node, buildId(id))),
  "GET builds/:id/log": (node, { id }) => ({ lines: findBuild(node, buildId(id)).log.slice(-1_000) }),
  "DELETE builds/:id": (node, { id }) => deleteBuild(node, buildId(id)),
  "PUT previews": (node, { json }) => putPreviews(node, json),
  "PUT connections": (node, { json }) => putLease(node, json),
  "PUT connections/:id": (node, { id, json }) => putConnections(node, id, json),
  "DELETE connections/:id": (node, { id }) => deleteConnections(node, id),
  "GET network/:id": (node, { query }) => networkReport(node, query.get("after")),
  "GET wakes": async (node, { response }) => ({ wakes: await node.wakes.take(goneSignal(response)) }),
  "POST wakes/:id": (node, { id, json }) => node.wakes.answer(id, json),
  "GET snapshots": (node) => ({ snapshots: listSnapshots(node) }),
  "PUT snapshots/:id": async (node, { id, json, stateKey }) =>
    statusOf(node, await saveSnapshot(node, snapshotId(id), json, stateKey)),
  "GET snapshots/:id": (node, { id }) => statusOf(node, findState(node, snapshotId(id))),
  "DELETE snapshots/:id": (node, { id }) => deleteSnapshot(node, snapshotId(id)),
};

async function serve(node: NodeState, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { pathname, searchParams: query } = new URL(request.url ?? "/", "http://node");
  const [, version, kind, id = "", sub = "", ...rest] = pathname.split("/");
  if (version !== "v1") throw new Refusal("invalid", `no such call: ${request.method} ${pathname}`);
  if (sub === "guest")
    return await serveGuest(node, {
      machineId: machineId(id),
      path: rest.join("/"),
      searchParams: query,
      request,
      response,
    });
  if (kind === "snapshots" && request.method === "POST" && (sub === "pack" || sub === "unpack"))
    return await serveArchive(node, { action: sub, id, query, request, response });
  const body = await buffer(request);
  const name = [kind, id && ":id", sub, ...rest].filter((part) => part !== "").join("/");
  const call = CALLS[`${request.method} ${name}`];
  if (!call) throw new Refusal("invalid", `no such call: ${request.method} ${pathname}`);
  const json = sub === "files" || body.length === 0 ? undefined : parse(body);
  const stateKey = stateKeyOf(request.headers);
  const result = await call(node, { id, query, body, json, stateKey, response });
  if (result === ANSWERED) return;
  if (result === undefined) response.writeHead(204).end();
  else answer(response, result);
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    throw new Refusal("invalid", "the body must be JSON");
  }
}

/** A signal that aborts when the caller disconnects. */
function goneSignal(response: ServerResponse): AbortSignal {
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  return gone.signal;
}
