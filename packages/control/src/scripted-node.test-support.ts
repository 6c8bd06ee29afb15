/** A node whose answers a test writes: contract/node over a unix socket, frame by frame and fault by fault. */
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Duplex } from "node:stream";
import {
  encodeFrame,
  encodeTerminalFrame,
  FRAME,
  TERMINAL_FRAME,
  TerminalFrameDecoder,
  type TerminalSpec,
} from "@vivarium/contract/guest";
import {
  type ExecCall,
  encodeOpening,
  type MachineStatus,
  type NetworkReport,
  type NetworkSpec,
  NODE_ERRORS,
  type NodeErrorCode,
  type NodeInfo,
  OpeningReader,
  type PreviewTable,
  type SnapshotSpec,
  type SnapshotStatus,
  type StartSpec,
  type Wake,
  type WakeOutcome,
} from "@vivarium/contract/node";
import { listFrames } from "../../../test/support/guest-lists.ts";

export class Refusal extends Error {
  readonly code: NodeErrorCode;
  constructor(code: NodeErrorCode, message: string = code) {
    super(message);
    this.code = code;
  }
}

/** What a scripted command does with its answer. */
export class Output {
  readonly #response: ServerResponse;
  /** Fires when control drops the connection. */
  readonly gone: Promise<void>;

  constructor(response: ServerResponse) {
    this.#response = response;
    this.gone = new Promise((resolve) => response.once("close", resolve));
    response.writeHead(200, { "content-type": "application/octet-stream" }).flushHeaders();
  }
  stdout(data: Buffer | string): boolean {
    return this.#response.write(encodeFrame(FRAME.stdout, Buffer.from(data as string)));
  }
  stderr(data: Buffer | string): boolean {
    return this.#response.write(encodeFrame(FRAME.stderr, Buffer.from(data as string)));
  }
  drained(): Promise<void> {
    return new Promise((resolve) => this.#response.once("drain", resolve));
  }
  raw(data: Buffer): void {
    this.#response.write(data);
  }
  exit(exitCode = 0, end: Record<string, unknown> = {}): void {
    const whole = {
      exit_code: exitCode,
      timed_out: false,
      duration_us: 1500,
      stdout_truncated: false,
      stderr_truncated: false,
      ...end,
    };
    this.#response.end(encodeFrame(FRAME.exit, JSON.stringify(whole)));
  }
  /** The end of a log. */
  eof(end: Record<string, unknown> = {}): void {
    const whole = { stdout_truncated: false, stderr_truncated: false, ...end };
    this.#response.end(encodeFrame(FRAME.eof, JSON.stringify(whole)));
  }
  error(message: string): void {
    this.#response.end(encodeFrame(FRAME.error, JSON.stringify({ message })));
  }
  endWith(data: Buffer): void {
    this.#response.end(data);
  }
  /** Ends the answer in good order, but without an exit frame. */
  endWithoutExit(): void {
    this.#response.end();
  }
  breakOff(): void {
    this.#response.destroy();
  }
}

/** The machine's side of a terminal or a tunnel. */
export class Stream {
  readonly socket: Duplex;
  /** Terminal frames that came, or pieces of a tunnel under type -1. */
  readonly received: { type: number; payload: Buffer }[] = [];
  readonly gone: Promise<void>;

  constructor(socket: Duplex, kind: string, rest: Buffer) {
    this.socket = socket;
    this.gone = new Promise((resolve) => socket.once("close", () => resolve()));
    const decoder = new TerminalFrameDecoder();
    const take = (chunk: Buffer) =>
      this.received.push(...(kind === "tunnel" ? [{ type: -1, payload: chunk }] : decoder.push(chunk)));
    socket.write(encodeOpening({}));
    if (rest.length > 0) take(rest);
    socket.on("data", take);
    socket.on("end", () => socket.end());
  }
  send(type: number, payload: Buffer | string = ""): boolean {
    return this.socket.write(encodeTerminalFrame(type, Buffer.from(payload as string)));
  }
  exit(code: number): void {
    const payload = Buffer.alloc(4);
    payload.writeInt32BE(code);
    this.send(TERMINAL_FRAME.exit, payload);
    this.socket.end();
  }
}

export interface StreamCall {
  machineId: string;
  kind: "terminals" | "tunnel";
  spec: TerminalSpec;
}

/** A call below `guest/`, and what the test answers to it. */
export class GuestRequest {
  readonly machineId: string;
  /** As `"GET files/read"`. */
  readonly call: string;
  readonly query: Record<string, string>;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Fires when control drops the connection. */
  readonly gone: Promise<void>;

  constructor({ machineId, path, searchParams, request, response }: GuestParts) {
    this.machineId = machineId;
    this.call = `${request.method} ${path}`;
    this.query = Object.fromEntries(searchParams);
    this.request = request;
    this.response = response;
    this.gone = new Promise((resolve) => response.once("close", resolve));
  }
  body(): Promise<Buffer> {
    return readAll(this.request);
  }
  json(answerBody: unknown): void {
    const [method = "", path = ""] = this.call.split(" ");
    const list = listFrames(method, path, answerBody as object);
    if (list) this.response.writeHead(200).end(list);
    else answer(this.response, answerBody);
  }
  /** Raw bytes with their length, as a file is read. */
  bytes(content: Buffer): void {
    this.response.writeHead(200, { "content-length": content.length }).end(content);
  }
  output(): Output {
    return new Output(this.response);
  }
  breakOff(): void {
    this.response.destroy();
  }
}

interface GuestParts {
  machineId: string;
  path: string;
  searchParams: URLSearchParams;
  request: IncomingMessage;
  response: ServerResponse;
}

export class ScriptedNode {
  readonly socketPath: string;
  readonly machines = new Map<string, MachineStatus & { spec?: StartSpec }>();
  readonly snapshots = new Map<string, SnapshotStatus & { spec?: SnapshotSpec }>();
  readonly execs: (ExecCall & { machineId: string })[] = [];
  readonly files = new Map<string, Buffer>();
  info: NodeInfo = {
    node_id: "scripted",
    version: "0.0.0",
    isolation: "emulated",
    qemu_version: "10.0.0",
    reflink: true,
    cgroup_v2: true,
    disk: { free_bytes: 50 * 2 ** 30, total_bytes: 100 * 2 ** 30 },
    has_disk_room: true,
    baselines: ["small", "medium", "large"].map((size) => ({ template: "base", size })),
  };
  /** Called before a machine runs; throws a Refusal, or waits. */
  onStart: (machineId: string, spec: StartSpec) => Promise<void> | void = () => {};
  onExec: (call: ExecCall, output: () => Output) => Promise<void> | void = (_call, output) => output().exit();
  /** Called before a file is there; may break the answer off. */
  onFile: (path: string, response: ServerResponse) => void = () => {};
  onDelete: (machineId: string) => Promise<void> | void = () => {};
  /** Called before a snapshot is made; throws a Refusal, or waits. */
  onSnapshot: (snapshotId: string, spec: SnapshotSpec) => Promise<void> | void = () => {};
  /** Called before a network, or routes, are in force; throws a Refusal, or waits. */
  onNetwork: (machineId: string, spec: NetworkSpec) => Promise<void> | void = () => {};
  onPreviews: (table: PreviewTable) => Promise<void> | void = () => {};
  /** What is in force, by machine. */
  readonly networks = new Map<string, NetworkSpec>();
  /** What the gateway has; lost with `forgetPreviews`. */
  previews: PreviewTable = { version: 0, routes: [] };
  /** The next report; log lines and used previews are told until a report after its cursor is asked for. */
  report: NetworkReport = { counters: [], entries: [], lost: 0, cursor: "0", active_sessions: [] };
  /** How often it was told. */
  reportCount = 0;
  readonly wakeOutcomes = new Map<string, WakeOutcome>();
  readonly #wakes = new Map<string, Wake>();
  #wakeWaiters: (() => void)[] = [];
  onContinue: (machineId: string) => Promise<void> | void = () => {};
  /** Called before a terminal or tunnel opens; throws a Refusal, waits, or takes it into its own hands. */
  onStream: (call: StreamCall, accept: () => Stream) => Promise<void> | void = (_call, accept) => {
    accept();
  };
  /** Guests without named processes, unless a test says otherwise. */
  onGuest: (call: GuestRequest) => Promise<void> | void = (asked) => {
    if (asked.call !== "GET processes") throw new Refusal("internal", `nobody answers ${asked.call}`);
    asked.json({ processes: [] });
  };
  readonly guestCalls: GuestRequest[] = [];
  /** What opened, in order. */
  readonly streams: (StreamCall & { stream: Stream })[] = [];

  readonly #folder = mkdtempSync(path.join(tmpdir(), "scripted-node-"));
  readonly #upgraded = new Set<Duplex>();
  #server: Server | undefined;

  constructor() {
    this.socketPath = path.join(this.#folder, "node.sock");
  }

  async listen(): Promise<void> {
    rmSync(this.socketPath, { force: true });
    this.#server = createServer((request, response) => {
      this.#handle(request, response).catch((error: unknown) => refuse(response, error));
    });
    // As the node has it: a connection that is kept does not close by itself.
    this.#server.keepAliveTimeout = 0;
    this.#server.on("upgrade", (request, socket, head) => this.#stream(request, socket, head));
    await new Promise<void>((resolve) => this.#server?.listen(this.socketPath, resolve));
  }

  /** The daemon dies: its socket refuses, its machines live on. */
  async goDown(): Promise<void> {
    this.#server?.closeAllConnections();
    this.cutStreams();
    await new Promise((resolve) => this.#server?.close(resolve) ?? resolve(undefined));
    this.#server = undefined;
  }

  /** The daemon dies and is there again; machines live on. */
  async restart(): Promise<void> {
    await this.goDown();
    await this.listen();
  }

  /** The node restarts: it knows no routes any more. */
  forgetPreviews(): void {
    this.previews = { version: 0, routes: [] };
  }

  /** Something in a machine ends with it; machines of tests before this one may still go meanwhile. */
  breakOffWith(machineId: string, what: { breakOff(): void }): void {
    this.onDelete = (id) => {
      if (id === machineId) what.breakOff();
    };
  }

  /** Visitors come to a paused session. */
  visit(wakeId: string, sessionId: string): void {
    this.#wakes.set(wakeId, { wake_id: wakeId, session_id: sessionId });
    for (const tell of this.#wakeWaiters.splice(0)) tell();
  }

  /** Terminals and tunnels that are open, or opening. */
  get upgradedCount(): number {
    return this.#upgraded.size;
  }

  cutStreams(): void {
    for (const socket of this.#upgraded) socket.destroy();
  }

  async close(): Promise<void> {
    await this.goDown();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", "http://node");
    const [, , kind, id = "", sub = "", ...rest] = url.pathname.split("/");
    if (sub === "guest") return await this.#guest(id, rest.join("/"), url, request, response);
    const body = await readAll(request);
    const call = `${request.method} ${kind}${id && "/:id"}${sub && `/${sub}`}`;
    switch (call) {
      case "GET info":
        return answer(response, { ...this.info, previews_version: this.previews.version });
      case "PUT machines/:id/network":
        return answer(response, await this.#network(id, JSON.parse(body.toString()) as NetworkSpec));
      case "PUT previews":
        return answer(response, await this.#putPreviews(JSON.parse(body.toString()) as PreviewTable));
      case "GET network/:id":
        return answer(response, this.#report(url.searchParams.get("after")));
      case "GET wakes":
        return answer(response, { wakes: await this.#listWakes(response) });
      case "POST wakes/:id":
        this.#wakes.delete(id);
        this.wakeOutcomes.set(id, JSON.parse(body.toString()) as WakeOutcome);
        return void response.writeHead(204).end();
      case "GET machines":
        return answer(response, { machines: [...this.machines.values()] });
      case "PUT machines/:id":
        return answer(response, await this.#start(id, JSON.parse(body.toString()) as StartSpec));
      case "DELETE machines/:id":
        await this.onDelete(id);
        this.machines.delete(id);
        return void response.writeHead(204).end();
      case "POST machines/:id/continue":
        return answer(response, await this.#continue(id));
      case "GET snapshots":
        return answer(response, { snapshots: [...this.snapshots.values()] });
      case "GET snapshots/:id":
        return answer(response, this.#snapshot(id));
      case "PUT snapshots/:id":
        return answer(response, await this.#save(id, JSON.parse(body.toString()) as SnapshotSpec));
      case "DELETE snapshots/:id":
        this.snapshots.delete(id);
        return void response.writeHead(204).end();
      case "POST machines/:id/exec":
        return await this.#exec(id, JSON.parse(body.toString()) as ExecCall, response);
      case "PUT machines/:id/files":
        this.onFile(url.searchParams.get("path") ?? "", response);
        this.files.set(url.searchParams.get("path") ?? "", body);
        return answer(response, { bytes: body.length });
      default:
        throw new Refusal("invalid", `no such call: ${call}`);
    }
  }

  /** The same start again gives the same machine, another one under its name is refused. */
  async #start(id: string, spec: StartSpec): Promise<MachineStatus> {
    await this.onStart(id, spec);
    const known = this.machines.get(id);
    if (known?.spec && JSON.stringify(known.spec) !== JSON.stringify(spec))
      throw new Refusal("machine_conflict");
    if (known?.spec) return statusOf(known);
    if (spec.snapshot_id) this.#snapshot(spec.snapshot_id);
    const timings = { queue: 1, disk: 2, load: 3, handshake: 4 };
    const state = spec.hold ? ("held" as const) : ("running" as const);
    const status = { machine_id: id, state, timings, guest_ip: "10.64.0.3" };
    this.machines.set(id, { ...status, spec });
    if (spec.network) this.networks.set(id, spec.network);
    return status;
  }

  async #network(id: string, spec: NetworkSpec): Promise<{ generation: number }> {
    if (this.#machine(id).state === "held") throw new Refusal("machine_held");
    const known = this.networks.get(id);
    if (known && known.generation > spec.generation) throw new Refusal("network_conflict");
    await this.onNetwork(id, spec);
    this.networks.set(id, spec);
    return { generation: spec.generation };
  }

  async #putPreviews(table: PreviewTable): Promise<{ version: number }> {
    if (this.previews.version > table.version) throw new Refusal("network_conflict");
    await this.onPreviews(table);
    this.previews = table;
    return { version: table.version };
  }

  #report(after: string | null): NetworkReport {
    this.reportCount += 1;
    if (after === this.report.cursor)
      this.report = { ...this.report, entries: [], lost: 0, active_sessions: [] };
    return this.report;
  }

  /** Waits for one as long as control does. */
  async #listWakes(response: ServerResponse): Promise<Wake[]> {
    if (this.#wakes.size === 0) {
      await new Promise<void>((resolve) => {
        this.#wakeWaiters.push(resolve);
        response.once("close", resolve);
      });
    }
    return [...this.#wakes.values()];
  }

  async #continue(id: string): Promise<MachineStatus> {
    await this.onContinue(id);
    const machine = this.#machine(id);
    machine.state = "running";
    return statusOf(machine);
  }

  async #save(id: string, spec: SnapshotSpec): Promise<SnapshotStatus> {
    await this.onSnapshot(id, spec);
    const known = this.snapshots.get(id);
    if (known?.spec && JSON.stringify(known.spec) !== JSON.stringify(spec))
      throw new Refusal("snapshot_conflict");
    if (known) return known;
    const source = "machine_id" in spec ? this.#capture(spec) : this.#snapshot(spec.snapshot_id);
    const status: SnapshotStatus & { spec?: SnapshotSpec } = {
      snapshot_id: id,
      state: "ready",
      template: source.template,
      size: source.size,
      bytes: "machine_id" in spec ? 4096 : 0,
      created_at: new Date().toISOString(),
      timings: { freeze: 1, state: 2, memory: 3, disk: 4, publish: 5, stopped: 6 },
      spec,
    };
    this.snapshots.set(id, status);
    return status;
  }

  #capture(spec: Extract<SnapshotSpec, { machine_id: string }>): { template: string; size: string } {
    const machine = this.#machine(spec.machine_id);
    if (machine.state === "held") throw new Refusal("machine_held");
    if (spec.after === "hold") machine.state = "held";
    return { template: machine.spec?.template ?? "base", size: machine.spec?.size ?? "small" };
  }

  #machine(id: string): MachineStatus & { spec?: StartSpec } {
    const machine = this.machines.get(id);
    if (!machine) throw new Refusal("machine_not_found");
    if (machine.state === "ended") throw new Refusal("machine_gone");
    return machine;
  }

  #snapshot(id: string): SnapshotStatus {
    const snapshot = this.snapshots.get(id);
    if (!snapshot) throw new Refusal("snapshot_not_found");
    if (this.info.damaged_snapshots?.includes(id)) throw new Refusal("snapshot_damaged");
    return snapshot;
  }

  #stream(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const [, , , machineId = "", kind = ""] = (request.url ?? "").split("/");
    const reader = new OpeningReader();
    this.#upgraded.add(socket);
    socket.once("close", () => this.#upgraded.delete(socket));
    socket.on("error", () => socket.destroy());
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: vivarium-stream\r\n\r\n",
    );
    const onData = (chunk: Buffer) => {
      const opening = reader.push(chunk);
      if (!opening) return;
      socket.off("data", onData);
      const call = { machineId, kind: kind as "tunnel", spec: opening.value as TerminalSpec };
      this.#openStream(call, socket, opening.rest).catch((error: unknown) => {
        const code = error instanceof Refusal ? error.code : "internal";
        socket.end(encodeOpening({ code, message: (error as Error).message }));
      });
    };
    socket.on("data", onData);
    if (head.length > 0) onData(head);
  }

  async #openStream(call: StreamCall, socket: Duplex, rest: Buffer): Promise<void> {
    if (this.#machine(call.machineId).state === "held") throw new Refusal("machine_held");
    await this.onStream(call, () => {
      const stream = new Stream(socket, call.kind, rest);
      this.streams.push({ ...call, stream });
      return stream;
    });
  }

  async #guest(
    machineId: string,
    path: string,
    { searchParams }: URL,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const call = new GuestRequest({ machineId, path, searchParams, request, response });
    this.guestCalls.push(call);
    if (this.#machine(machineId).state === "held") throw new Refusal("machine_held");
    await this.onGuest(call);
  }

  async #exec(id: string, call: ExecCall, response: ServerResponse): Promise<void> {
    if (this.#machine(id).state === "held") throw new Refusal("machine_held");
    this.execs.push({ ...call, machineId: id });
    await this.onExec(call, () => new Output(response));
  }
}

function statusOf({ spec: _spec, ...status }: MachineStatus & { spec?: StartSpec }): MachineStatus {
  return status;
}

async function readAll(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function answer(response: ServerResponse, body: unknown): void {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
}

function refuse(response: ServerResponse, error: unknown): void {
  if (response.headersSent || response.destroyed) return void response.destroy();
  const code = error instanceof Refusal ? error.code : "internal";
  const text = JSON.stringify({ code, message: (error as Error).message });
  response.writeHead(NODE_ERRORS[code].status, { "content-type": "application/json" }).end(text);
}
