/**
 * A node without virtual machines: it answers every call of contract/node over HTTP on a unix socket and runs the
 * commands as processes of this host, in a temporary directory that stands for the guest's /workspace. The suite
 * test/contract/node-contract.ts holds for it as for the real daemon.
 */
import { mkdir, mkdtemp, rename, rm, stat, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { dirname, isAbsolute, join, normalize } from "node:path";
import {
  ExecCall,
  MachineId,
  type MachineStatus,
  NODE_ERRORS,
  type NodeErrorCode,
  type NodeInfo,
  StartSpec,
} from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { serveGuest } from "./fake-guest.ts";
import {
  endMachine,
  type FakeMachine,
  type FakeState,
  found,
  Refusal,
  running,
  valid,
} from "./fake-machine.ts";
import { type FakeNetwork, networkReport, noNetwork, putNetwork, putPreviews } from "./fake-network.ts";
import {
  continueMachine,
  deleteSnapshot,
  type FakeSnapshot,
  findSnapshot,
  listSnapshots,
  loadSnapshot,
  saveSnapshot,
} from "./fake-snapshots.ts";
import { serveUpgrade } from "./fake-terminals.ts";
import { runHostCommand } from "./host-command.ts";

export interface FakeCall {
  method: string;
  path: string;
  body: unknown;
}

export interface FakeNode {
  socketPath: string;
  machines: Map<string, FakeMachine>;
  /** Every call that arrived, in order; bodies of files are left out. */
  calls: FakeCall[];
  failNextStart(code: NodeErrorCode, message: string): void;
  /** What root in a guest can do: no copy of it becomes another machine. */
  makeUnfit(machineId: string): void;
  /** What a machine does when its QEMU dies: it stays listed as `ended`. */
  endMachine(machineId: string, reason: string): void;
  /** Holds every answer until the returned function is called. */
  pauseAnswers(): () => void;
  close(): Promise<void>;
}

export interface FakeNodeOptions {
  socketPath?: string;
  startDelayMs?: number;
  info?: Partial<NodeInfo>;
}

interface State extends FakeState {
  network: FakeNetwork;
  options: FakeNodeOptions;
  calls: FakeCall[];
  nextStartFailure: Refusal | undefined;
  gate: Promise<void>;
}

export async function startFakeNode(options: FakeNodeOptions = {}): Promise<FakeNode> {
  const dir = await mkdtemp(join(tmpdir(), "fake-node-"));
  const socketPath = options.socketPath ?? join(dir, "node.sock");
  const state: State = {
    dir,
    options,
    machines: new Map(),
    snapshots: new Map(),
    network: noNetwork(),
    calls: [],
    nextStartFailure: undefined,
    gate: Promise.resolve(),
  };
  const server = createServer((request, response) => {
    handle(state, request, response).catch((error) => refuse(response, error));
  });
  server.keepAliveTimeout = 0;
  const sockets = new Set<Socket>();
  server.on("upgrade", (request, socket: Socket, head) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    const place = async (machine: FakeMachine, { argv = ["bash", "-l"], cwd, env }: Command) =>
      await placeOf(machine, { argv, cwd, env });
    void serveUpgrade({ request, socket, head }, (id) => running(state, id), place);
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    socketPath,
    machines: state.machines,
    calls: state.calls,
    failNextStart: (code, message) => {
      state.nextStartFailure = new Refusal(code, message);
    },
    makeUnfit: (machineId) => {
      found(state, machineId).isUnfit = true;
    },
    endMachine: (machineId, reason) => endMachine(found(state, machineId), reason),
    pauseAnswers: () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      state.gate = promise;
      return resolve;
    },
    close: async () => {
      for (const machine of state.machines.values()) endMachine(machine, "closed");
      server.closeAllConnections();
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
      await rm(dir, { recursive: true, force: true });
    },
  };
}

const WAKES_MS = 20_000;
const GUEST_PATH = /^\/v1\/machines\/([^/]+)\/guest(\/.+)$/;
const ITEM_PATH = /^\/v1\/(machines|snapshots|wakes)\/([^/]+)(\/exec|\/files|\/continue|\/network)?$/;

async function handle(state: State, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? "/", "http://node");
  const [, machineId = "", target = ""] = GUEST_PATH.exec(url.pathname) ?? [];
  if (target !== "") {
    state.calls.push({ method: request.method ?? "", path: url.pathname, body: undefined });
    await state.gate;
    const call = { method: request.method ?? "", path: target, query: url.searchParams, request, response };
    return await serveGuest(running(state, machineId), call, placeOf);
  }
  const body = await readAll(request);
  const isJson = !url.pathname.endsWith("/files") && body.length > 0;
  const parsed = isJson ? parseJson(body) : undefined;
  state.calls.push({ method: request.method ?? "", path: url.pathname, body: parsed });
  await state.gate;
  const [, kind = "", id = "", sub = ""] = ITEM_PATH.exec(url.pathname) ?? [];
  const route = `${request.method} ${id === "" ? url.pathname : `/v1/${kind}/:id${sub}`}`;
  switch (route) {
    case "GET /v1/info":
      return answer(response, 200, nodeInfo(state));
    case "GET /v1/machines":
      return answer(response, 200, { machines: [...state.machines.values()].map((m) => m.status) });
    case "PUT /v1/machines/:id":
      return answer(response, 200, await startMachine(state, id, parsed));
    case "GET /v1/machines/:id":
      return answer(response, 200, found(state, id).status);
    case "DELETE /v1/machines/:id":
      await deleteMachine(state, id);
      response.writeHead(204).end();
      return;
    case "POST /v1/machines/:id/exec":
      return exec(running(state, id), parsed, response);
    case "PUT /v1/machines/:id/files":
      return answer(response, 200, await putFile(running(state, id), url, body));
    case "POST /v1/machines/:id/continue":
      return answer(response, 200, await continueMachine(state, id));
    case "PUT /v1/machines/:id/network":
      return answer(response, 200, putNetwork(state, id, parsed));
    case "PUT /v1/previews":
      return answer(response, 200, putPreviews(state.network, parsed));
    case "GET /v1/network/report":
      return answer(response, 200, networkReport(state));
    case "GET /v1/wakes":
      // Nobody ever visits: it says so when the caller has waited for long enough.
      return await sleep(WAKES_MS, goneSignal(response)).then(() => answer(response, 200, { wakes: [] }));
    case "POST /v1/wakes/:id":
      response.writeHead(204).end();
      return;
    case "GET /v1/snapshots":
      return answer(response, 200, { snapshots: listSnapshots(state) });
    case "GET /v1/snapshots/:id":
      return answer(response, 200, findSnapshot(state, id).status);
    case "PUT /v1/snapshots/:id":
      return answer(response, 200, await saveSnapshot(state, id, parsed));
    case "DELETE /v1/snapshots/:id":
      await deleteSnapshot(state, id);
      response.writeHead(204).end();
      return;
    default:
      throw new Refusal("invalid", `no such call: ${route}`);
  }
}

async function startMachine(state: State, machineId: string, body: unknown): Promise<MachineStatus> {
  if (!MachineId.safeParse(machineId).success)
    throw new Refusal("machine_not_found", "no machine of this name on this node");
  const spec = valid(StartSpec.safeParse(body));
  const known = state.machines.get(machineId);
  if (known) {
    if (JSON.stringify(known.spec) !== JSON.stringify(spec))
      throw new Refusal("machine_conflict", "the machine exists with other parameters");
    await known.started;
    return known.status;
  }
  const failure = state.nextStartFailure;
  state.nextStartFailure = undefined;
  if (failure) throw failure;
  const snapshot = spec.snapshot_id === undefined ? undefined : findSnapshot(state, spec.snapshot_id);
  if (snapshot && snapshot.status.size !== spec.size)
    throw new Refusal("invalid", `size: the snapshot is of size ${snapshot.status.size}`);
  if (snapshot?.isUnfit && !spec.resume)
    throw new Refusal("guest_unfit", "it does not confirm that it goes on: it is unfit");
  const { baselines } = nodeInfo(state);
  if (!snapshot && !baselines.some((b) => b.template === spec.template && b.size === spec.size))
    throw new Refusal("template_unavailable", `no baseline of ${spec.template} in size ${spec.size}`);
  const machine: FakeMachine = {
    status: { machine_id: machineId, state: "starting", network_generation: spec.network?.generation },
    spec,
    dir: join(state.dir, machineId),
    groups: new Set(),
    life: new AbortController(),
    started: Promise.resolve(),
    placed: new Map(),
    processes: new Map(),
    underWay: new Set(),
    turn: Promise.resolve(),
    isDeleted: false,
    isUnfit: snapshot?.isUnfit ?? false,
  };
  state.machines.set(machineId, machine);
  machine.started = bringUp(machine, state.options.startDelayMs ?? 0, snapshot);
  await machine.started;
  return machine.status;
}

async function bringUp(machine: FakeMachine, delayMs: number, snapshot?: FakeSnapshot): Promise<void> {
  if (snapshot) await loadSnapshot(snapshot, machine);
  await mkdir(join(machine.dir, "workspace"), { recursive: true });
  await mkdir(join(machine.dir, "home"), { recursive: true });
  await sleep(delayMs, machine.life.signal);
  if (machine.life.signal.aborted)
    throw new Refusal("machine_gone", "the machine was deleted while starting");
  const timings = { queue: 0, disk: 0, load: delayMs, handshake: 0 };
  machine.status = { ...machine.status, state: machine.spec.hold ? "held" : "running", timings };
}

async function deleteMachine(state: State, machineId: string): Promise<void> {
  const machine = state.machines.get(machineId);
  if (!machine) return;
  machine.isDeleted = true;
  endMachine(machine, "deleted");
  await machine.started.catch(() => {});
  await machine.turn;
  await rm(machine.dir, { recursive: true, force: true, maxRetries: 5 });
  state.machines.delete(machineId);
  state.network.specs.delete(machineId);
}

async function exec(machine: FakeMachine, body: unknown, response: ServerResponse): Promise<void> {
  const call = valid(ExecCall.safeParse(body));
  if (call.argv[0] === "") throw new Refusal("invalid", "argv must not start with an empty string");
  const place = await placeOf(machine, call);
  const gone = new AbortController();
  const end = () => response.destroy();
  machine.underWay.add(end);
  response.on("close", () => {
    machine.underWay.delete(end);
    // Of a machine that is held the commands stand still; they go on with it.
    if (machine.status.state !== "held") gone.abort();
  });
  await runHostCommand({
    call,
    ...place,
    out: response,
    onSpawned: () => {
      response.writeHead(200, { "content-type": "application/octet-stream" });
      response.flushHeaders();
    },
    signal: AbortSignal.any([gone.signal, machine.life.signal]),
    onGroup: (pgid) => machine.groups.add(pgid),
  });
}

interface Command {
  argv?: string[];
  cwd?: string;
  env: Record<string, string>;
}

/** What a command of the guest is on this host. */
async function placeOf(machine: FakeMachine, { argv = [], cwd, env }: Command) {
  return {
    argv: argv.map((argument) => toHostText(machine, argument)),
    cwd: await workingDirectory(machine, cwd),
    env: { ...baseEnvironment(machine), ...env },
  };
}

function baseEnvironment(machine: FakeMachine): Record<string, string> {
  return {
    PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    HOME: join(machine.dir, "home"),
    USER: "sandbox",
    SHELL: "/bin/bash",
    LANG: "C.UTF-8",
  };
}

async function workingDirectory(machine: FakeMachine, cwd = "/workspace"): Promise<string> {
  const path = toHostText(machine, isAbsolute(cwd) ? normalize(cwd) : normalize(join("/workspace", cwd)));
  const info = await stat(path).catch((error: NodeJS.ErrnoException) => {
    throw error.code === "ENOTDIR"
      ? new Refusal("cwd_not_a_directory", `working directory ${cwd}: not a directory`)
      : new Refusal("cwd_not_found", `working directory ${cwd}: no such file or directory`);
  });
  if (info.isDirectory()) return path;
  throw new Refusal("cwd_not_a_directory", `working directory ${cwd}: not a directory`);
}

async function putFile(machine: FakeMachine, url: URL, body: Buffer): Promise<{ bytes: number }> {
  const path = url.searchParams.get("path") ?? "";
  if (path === "" || path.includes("\0")) throw new Refusal("invalid", "path must be a non-empty path");
  const guestPath = isAbsolute(path) ? normalize(path) : normalize(join("/workspace", path));
  const isInside = guestPath.startsWith("/workspace/");
  const hostPath = isInside ? toHostText(machine, guestPath) : join(machine.dir, "outside", guestPath);
  if (!isInside) machine.placed.set(guestPath, hostPath);
  await mkdir(dirname(hostPath), { recursive: true });
  await writeFile(`${hostPath}.part`, body);
  await rename(`${hostPath}.part`, hostPath);
  return { bytes: body.length };
}

/** Guest paths in a text become paths of this host, so that a command finds the files it was given. */
function toHostText(machine: FakeMachine, text: string): string {
  let mapped = text.replaceAll(/(?<![\w.-])\/workspace(?![\w-])/g, join(machine.dir, "workspace"));
  for (const [guestPath, hostPath] of machine.placed) mapped = mapped.replaceAll(guestPath, hostPath);
  return mapped;
}

function nodeInfo(state: State): NodeInfo {
  return {
    node_id: "fake",
    version: "0.0.0",
    isolation: "emulated",
    qemu_version: "0.0.0",
    reflink: false,
    cgroup_v2: false,
    disk: { free_bytes: 50 * 2 ** 30, total_bytes: 100 * 2 ** 30 },
    has_disk_room: true,
    baselines: ["small", "medium", "large"].map((size) => ({ template: "base", size })),
    previews_version: state.network.previews.version,
    gateway: true,
    ...state.options.info,
  };
}

function parseJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    throw new Refusal("invalid", "the body must be JSON");
  }
}

/** Fires when the caller is gone. */
function goneSignal(response: ServerResponse): AbortSignal {
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  return gone.signal;
}

async function readAll(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function answer(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

function refuse(response: ServerResponse, error: unknown): void {
  if (response.headersSent) return void response.destroy();
  const code = error instanceof Refusal ? error.code : "internal";
  answer(response, NODE_ERRORS[code].status, { code, message: (error as Error).message });
}
