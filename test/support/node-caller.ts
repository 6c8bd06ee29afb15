/** A client of contract/node over its unix socket, for tests and benchmarks. */
import { once } from "node:events";
import { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import type { Socket } from "node:net";
import { ExecEnd, FRAME, FrameDecoder } from "@vivarium/contract/guest";
import { type ExecCall, encodeOpening, OpeningReader } from "@vivarium/contract/node";

export interface NodeAnswer {
  status: number;
  body: unknown;
}

export interface NodeExec {
  status: number;
  /** Body of a refusal. */
  refusal?: { code: string; message: string };
  stdout: Buffer;
  stderr: Buffer;
  /** Missing when the answer broke off early. */
  exit?: ExecEnd;
}

export interface NodeCaller {
  call(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<NodeAnswer>;
  putFile(machineId: string, path: string, bytes: Buffer): Promise<NodeAnswer>;
  exec(machineId: string, call: Partial<ExecCall>, options?: NodeExecOptions): Promise<NodeExec>;
  /** Makes a call below `guest/`; returns the whole answer. */
  guest(machineId: string, method: string, target: string, body?: object | Buffer): Promise<GuestAnswer>;
  /** Begins a call below `guest/`; the caller sends the body and reads the answer. */
  beginGuest(machineId: string, method: string, target: string): ClientRequest;
  /** Begins a call whose body is not known yet; the caller sends it and reads the answer. */
  begin(method: string, path: string, headers?: Record<string, string>): ClientRequest;
  /** Opens a stream; resolves to its socket after both openings, or to the refusal. */
  stream(machineId: string, kind: "terminals" | "tunnel", spec: object): Promise<NodeStream>;
}

export interface GuestAnswer {
  status: number;
  bytes: Buffer;
  headers: IncomingHttpHeaders;
  /** Parsed body of a JSON answer. */
  body: unknown;
}

export type NodeStream = { socket: Socket } | { refusal: { code: string; message: string } };

export interface NodeExecOptions {
  signal?: AbortSignal;
  /** Called at the headers of the answer: the command runs. */
  onStarted?: () => void;
  onStdout?: (chunk: Buffer) => void;
}

export function nodeCaller(socketPath: string): NodeCaller {
  return {
    call: async (method, path, body, headers) => {
      const text = body === undefined ? undefined : JSON.stringify(body);
      return await answerOf(await send(socketPath, method, path, text, { headers }));
    },
    putFile: async (machineId, path, bytes) => {
      const target = `/v1/machines/${machineId}/files?path=${encodeURIComponent(path)}`;
      return await answerOf(await send(socketPath, "PUT", target, bytes));
    },
    exec: (machineId, call, options = {}) => exec(socketPath, machineId, call, options),
    guest: async (machineId, method, target, body) => {
      const payload = body === undefined || Buffer.isBuffer(body) ? body : JSON.stringify(body);
      const path = `/v1/machines/${machineId}/guest${target}`;
      const response = await send(socketPath, method, path, payload);
      const bytes = await collect(response);
      const { headers, statusCode: status = 0 } = response;
      const isJson = headers["content-type"]?.startsWith("application/json");
      return { status, bytes, headers, body: isJson ? JSON.parse(bytes.toString()) : undefined };
    },
    beginGuest: (machineId, method, target) => {
      const path = `/v1/machines/${machineId}/guest${target}`;
      return request({ socketPath, method, path, agent: false }).on("error", () => {});
    },
    begin: (method, path, headers) => {
      const call = request({ socketPath, method, path, headers, agent: false }).on("error", () => {});
      call.flushHeaders();
      return call;
    },
    stream: (machineId, kind, spec) => openStream(socketPath, `/v1/machines/${machineId}/${kind}`, spec),
  };
}

async function answerOf(response: IncomingMessage): Promise<NodeAnswer> {
  const text = (await collect(response)).toString();
  return { status: response.statusCode ?? 0, body: text === "" ? undefined : JSON.parse(text) };
}

async function openStream(socketPath: string, path: string, spec: object): Promise<NodeStream> {
  const headers = { connection: "Upgrade", upgrade: "vivarium-stream" };
  const call = request({ socketPath, path, headers, agent: false }).end();
  const upgraded = await Promise.race([
    once(call, "upgrade") as Promise<[IncomingMessage, Socket, Buffer]>,
    once(call, "response").then(async ([response]) => JSON.parse((await collect(response)).toString())),
  ]);
  if (!Array.isArray(upgraded)) return { refusal: upgraded };
  const [, socket, head] = upgraded;
  socket.on("error", () => {}).unshift(head);
  socket.write(encodeOpening(spec));
  const reader = new OpeningReader();
  for (;;) {
    const arrived = once(socket, "data");
    socket.resume();
    const opening = reader.push((await arrived)[0] as Buffer);
    socket.pause();
    if (opening === undefined) continue;
    socket.unshift(opening.rest);
    const answer = opening.value as { code?: string; message?: string };
    return answer.code === undefined
      ? { socket }
      : { refusal: { code: answer.code, message: answer.message ?? "" } };
  }
}

async function exec(
  socketPath: string,
  machineId: string,
  call: Partial<ExecCall>,
  options: NodeExecOptions,
): Promise<NodeExec> {
  const body = JSON.stringify({ env: {}, timeout_ms: 60_000, ...call });
  const response = await send(socketPath, "POST", `/v1/machines/${machineId}/exec`, body, options);
  const status = response.statusCode ?? 0;
  const none = { status, stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
  if (status !== 200) return { ...none, refusal: JSON.parse((await collect(response)).toString()) };
  options.onStarted?.();
  const decoder = new FrameDecoder();
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  let exit: ExecEnd | undefined;
  try {
    for await (const chunk of response) {
      for (const frame of decoder.push(chunk as Buffer)) {
        if (frame.type === FRAME.exit) exit = ExecEnd.parse(JSON.parse(frame.payload.toString()));
        if (frame.type === FRAME.stderr) stderr.push(Buffer.from(frame.payload));
        if (frame.type !== FRAME.stdout) continue;
        if (options.onStdout) options.onStdout(frame.payload);
        else stdout.push(Buffer.from(frame.payload));
      }
    }
  } catch (error) {
    if (options.signal?.aborted) throw error;
  }
  return { status, stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr), exit };
}

function send(
  socketPath: string,
  method: string,
  path: string,
  body?: string | Buffer,
  { headers: more = {}, signal }: { headers?: Record<string, string>; signal?: AbortSignal } = {},
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const headers: Record<string, string | number> =
      body === undefined
        ? more
        : {
            ...more,
            "content-type": typeof body === "string" ? "application/json" : "application/octet-stream",
            "content-length": Buffer.byteLength(body),
          };
    const outgoing = request({ socketPath, method, path, headers, signal, agent: false }, resolve);
    outgoing.on("error", reject);
    outgoing.end(body);
  });
}

async function collect(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
