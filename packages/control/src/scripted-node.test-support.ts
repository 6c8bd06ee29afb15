/** A node whose answers a test writes: contract/node over a unix socket, frame by frame and fault by fault. */
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { encodeFrame, FRAME } from "@vivarium/contract/guest";
import {
  type ExecCall,
  type MachineStatus,
  NODE_ERRORS,
  type NodeErrorCode,
  type NodeInfo,
  type StartSpec,
} from "@vivarium/contract/node";

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
  error(message: string): void {
    this.#response.end(encodeFrame(FRAME.error, JSON.stringify({ message })));
  }
  /** Ends the answer in good order, but without an exit frame. */
  endWithoutExit(): void {
    this.#response.end();
  }
  breakOff(): void {
    this.#response.destroy();
  }
}

export class ScriptedNode {
  readonly socketPath: string;
  readonly machines = new Map<string, MachineStatus & { spec?: StartSpec }>();
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
    baselines: ["small", "medium", "large"].map((size) => ({ template: "base", size })),
  };
  /** Called before a machine runs; throws a Refusal, or waits. */
  onStart: (machineId: string) => Promise<void> | void = () => {};
  onExec: (call: ExecCall, output: () => Output) => Promise<void> | void = (_call, output) => output().exit();
  onDelete: (machineId: string) => Promise<void> | void = () => {};

  readonly #folder = mkdtempSync(path.join(tmpdir(), "scripted-node-"));
  #server: Server | undefined;

  constructor() {
    this.socketPath = path.join(this.#folder, "node.sock");
  }

  async listen(): Promise<void> {
    rmSync(this.socketPath, { force: true });
    this.#server = createServer((request, response) => {
      this.#handle(request, response).catch((error: unknown) => refuse(response, error));
    });
    await new Promise<void>((resolve) => this.#server?.listen(this.socketPath, resolve));
  }

  /** The daemon dies: its socket refuses, its machines live on. */
  async goDown(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise((resolve) => this.#server?.close(resolve) ?? resolve(undefined));
    this.#server = undefined;
  }

  async close(): Promise<void> {
    await this.goDown();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", "http://node");
    const body = await readAll(request);
    const [, , kind, id = "", sub = ""] = url.pathname.split("/");
    const call = `${request.method} ${kind}${id && "/:id"}${sub && `/${sub}`}`;
    switch (call) {
      case "GET info":
        return answer(response, this.info);
      case "GET machines":
        return answer(response, { machines: [...this.machines.values()] });
      case "PUT machines/:id":
        return answer(response, await this.#start(id, JSON.parse(body.toString()) as StartSpec));
      case "DELETE machines/:id":
        await this.onDelete(id);
        this.machines.delete(id);
        return void response.writeHead(204).end();
      case "POST machines/:id/exec":
        return await this.#exec(id, JSON.parse(body.toString()) as ExecCall, response);
      case "PUT machines/:id/files":
        this.files.set(url.searchParams.get("path") ?? "", body);
        return answer(response, { bytes: body.length });
      default:
        throw new Refusal("invalid", `no such call: ${call}`);
    }
  }

  async #start(id: string, spec: StartSpec): Promise<MachineStatus> {
    await this.onStart(id);
    const timings = { queue: 1, disk: 2, load: 3, handshake: 4 };
    const status = { machine_id: id, state: "running" as const, timings };
    this.machines.set(id, { ...status, spec });
    return status;
  }

  async #exec(id: string, call: ExecCall, response: ServerResponse): Promise<void> {
    const machine = this.machines.get(id);
    if (!machine) throw new Refusal("machine_not_found");
    if (machine.state === "ended") throw new Refusal("machine_gone");
    this.execs.push({ ...call, machineId: id });
    await this.onExec(call, () => new Output(response));
  }
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
