/** A plain client of contract/node over its unix socket, for tests and benchmarks. */
import { type IncomingMessage, request } from "node:http";
import { ExecEnd, FRAME, FrameDecoder } from "@vivarium/contract/guest";
import type { ExecCall } from "@vivarium/contract/node";

export interface NodeAnswer {
  status: number;
  body: unknown;
}

export interface NodeExec {
  status: number;
  /** Parsed body of a refusal. */
  refusal?: { code: string; message: string };
  stdout: Buffer;
  stderr: Buffer;
  /** Missing when the answer broke off. */
  exit?: ExecEnd;
}

export interface NodeCaller {
  call(method: string, path: string, body?: unknown): Promise<NodeAnswer>;
  putFile(machineId: string, path: string, bytes: Buffer): Promise<NodeAnswer>;
  exec(machineId: string, call: Partial<ExecCall>, options?: NodeExecOptions): Promise<NodeExec>;
}

export interface NodeExecOptions {
  signal?: AbortSignal;
  /** Called when the headers are there: the command runs. */
  onStarted?: () => void;
  onStdout?: (chunk: Buffer) => void;
}

export function nodeCaller(socketPath: string): NodeCaller {
  return {
    call: async (method, path, body) => {
      const response = await send(
        socketPath,
        method,
        path,
        body === undefined ? undefined : JSON.stringify(body),
      );
      const text = (await collect(response)).toString();
      return { status: response.statusCode ?? 0, body: text === "" ? undefined : JSON.parse(text) };
    },
    putFile: async (machineId, path, bytes) => {
      const target = `/v1/machines/${machineId}/files?path=${encodeURIComponent(path)}`;
      const response = await send(socketPath, "PUT", target, bytes);
      return { status: response.statusCode ?? 0, body: JSON.parse((await collect(response)).toString()) };
    },
    exec: (machineId, call, options = {}) => exec(socketPath, machineId, call, options),
  };
}

async function exec(
  socketPath: string,
  machineId: string,
  call: Partial<ExecCall>,
  options: NodeExecOptions,
): Promise<NodeExec> {
  const body = JSON.stringify({ env: {}, timeout_ms: 60_000, ...call });
  const response = await send(socketPath, "POST", `/v1/machines/${machineId}/exec`, body, options.signal);
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
  signal?: AbortSignal,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const headers: Record<string, string | number> =
      body === undefined
        ? {}
        : {
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
