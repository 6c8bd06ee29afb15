/**
 * HTTP/2 client of one machine's agent. Reconnects by itself: a broken connection fails what was in flight, the next
 * request opens a new one. Every answer has a limit in size and time; an agent that breaks one makes its own session
 * unavailable and nothing else (security.md C12).
 */
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import type { Readable } from "node:stream";
import {
  AgentError,
  AgentHealth,
  GENERATION,
  GUEST_LIMITS,
  type Resumed,
  ResumedAck,
} from "@vivarium/contract/guest";
import { z } from "zod";
import { NodeError } from "../node-error.ts";
import { openChannel } from "./channel.ts";

const CONNECT_LIMIT_MS = 10_000;
const CALL_LIMIT_MS = 20_000;
/** A command that was handed over but is not confirmed: it may have started, so this is no retryable failure. */
const SPAWN_LIMIT_MS = 60_000;
/** Silence after which the agent is asked for a sign of life before anything is handed over to it. */
const SILENCE_MS = 2_000;
const PING_LIMIT_MS = 8_000;
/** Big enough that one round trip of flow control does not bound the throughput of a stream. */
const WINDOW_BYTES = 1024 * 1024;

export interface AgentAnswer {
  status: number;
  stream: ClientHttp2Stream;
}

export class AgentClient {
  #socketPath: string;
  #session: Promise<ClientHttp2Session> | null = null;
  #heardAt = 0;
  #closed = false;

  constructor(socketPath: string) {
    this.#socketPath = socketPath;
  }

  /** The machine's folder was renamed: where to connect again, should the connection break. */
  moveTo(socketPath: string): void {
    this.#socketPath = socketPath;
  }

  health(limitMs = CALL_LIMIT_MS): Promise<AgentHealth> {
    return this.#call("GET", "/v1/health", undefined, AgentHealth, limitMs);
  }

  async resumed(body: Resumed): Promise<ResumedAck> {
    return this.#call("POST", "/v1/resumed", body, ResumedAck, CALL_LIMIT_MS);
  }

  async command(path: "/v1/freeze" | "/v1/thaw" | "/v1/power-off"): Promise<void> {
    await this.#call("POST", path, {}, z.object({}), CALL_LIMIT_MS);
  }

  /** Sends a request and returns once headers are there. The caller reads or closes the stream. */
  async request(method: string, path: string, body?: unknown, upload?: Readable): Promise<AgentAnswer> {
    const session = await this.#connect();
    await this.#ensureAlive(session);
    const stream = session.request(
      { ":method": method, ":path": path },
      { endStream: body === undefined && !upload },
    );
    stream.on("error", () => {});
    if (upload) upload.pipe(stream);
    else if (body !== undefined) stream.end(JSON.stringify(body));
    const status = await withLimit(headersOf(stream), SPAWN_LIMIT_MS, () => {
      stream.close(constants.NGHTTP2_CANCEL);
      return new NodeError("internal", "the agent took the request and did not answer");
    });
    this.#heardAt = Date.now();
    return { status, stream };
  }

  close(): void {
    this.#closed = true;
    void this.#session?.then(
      (session) => session.destroy(),
      () => {},
    );
    this.#session = null;
  }

  async #call<T>(
    method: string,
    path: string,
    body: unknown,
    schema: z.ZodType<T>,
    limitMs: number,
  ): Promise<T> {
    const answer = await withLimit(this.request(method, path, body), limitMs, () => {
      this.#drop();
      return late(limitMs);
    });
    const json = await withLimit(readJson(answer.stream), limitMs, () => {
      answer.stream.close();
      return late(limitMs);
    });
    if (answer.status !== 200) throw agentRefusal(json);
    const parsed = schema.safeParse(json);
    if (!parsed.success) throw new NodeError("agent_unavailable", "the agent answered outside its contract");
    return parsed.data;
  }

  #connect(): Promise<ClientHttp2Session> {
    if (this.#closed) return Promise.reject(new NodeError("machine_gone", "the machine has ended"));
    this.#session ??= this.#open().catch((cause) => {
      this.#session = null;
      throw new NodeError("agent_unavailable", "the agent inside the machine does not answer", { cause });
    });
    return this.#session;
  }

  async #open(): Promise<ClientHttp2Session> {
    const socket = await openChannel(this.#socketPath, CONNECT_LIMIT_MS);
    const session = connect("http://agent", {
      createConnection: () => socket,
      settings: { enablePush: false, initialWindowSize: WINDOW_BYTES },
      maxHeaderListPairs: 32,
      maxSessionMemory: 16,
      peerMaxConcurrentStreams: GUEST_LIMITS.concurrentStreams,
    });
    session.on("error", () => {});
    session.once("close", () => this.#drop());
    session.setLocalWindowSize?.(WINDOW_BYTES * 4);
    session.unref();
    return session;
  }

  async #ensureAlive(session: ClientHttp2Session): Promise<void> {
    if (Date.now() - this.#heardAt < SILENCE_MS) return;
    const pong = new Promise<void>((resolve, reject) => {
      const sent = session.ping((error) => (error ? reject(error) : resolve()));
      if (!sent) reject(new Error("no ping could be sent"));
    }).catch((cause) => {
      throw new NodeError("agent_unavailable", "the agent broke the connection", { cause });
    });
    await withLimit(pong, PING_LIMIT_MS, () => {
      this.#drop();
      return late(PING_LIMIT_MS);
    });
    this.#heardAt = Date.now();
  }

  #drop(): void {
    const session = this.#session;
    this.#session = null;
    void session?.then(
      (open) => open.destroy(),
      () => {},
    );
  }
}

export function assertGeneration(health: AgentHealth): void {
  if (health.generation !== GENERATION) {
    throw new Error(
      `the agent speaks generation ${health.generation}, this node speaks ${GENERATION}: bake again`,
    );
  }
}

function headersOf(stream: ClientHttp2Stream): Promise<number> {
  return new Promise((resolve, reject) => {
    stream.once("response", (headers) => resolve(Number(headers[constants.HTTP2_HEADER_STATUS])));
    stream.once("close", () => reject(new NodeError("agent_unavailable", "the agent broke the connection")));
  });
}

/** Reads a JSON body of bounded size; anything else is the agent's fault. */
export async function readJson(stream: ClientHttp2Stream): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > GUEST_LIMITS.jsonBodyBytes) {
      stream.close();
      throw new NodeError("agent_unavailable", "the agent answered with too much");
    }
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString("utf8"));
  } catch (cause) {
    throw new NodeError("agent_unavailable", "the agent answered with something that is not JSON", { cause });
  }
}

/** A refusal of the agent in the node's own words: guest text goes to the tenant, never into a decision. */
export function agentRefusal(body: unknown): NodeError {
  const parsed = AgentError.safeParse(body);
  if (!parsed.success) return new NodeError("agent_unavailable", "the agent refused without a reason");
  const { code, message } = parsed.data;
  const known = code === "cwd_not_found" || code === "cwd_not_a_directory" ? code : "invalid";
  return new NodeError(known, message.replace(/[^\x20-\x7e]/g, " "));
}

const late = (limitMs: number) =>
  new NodeError("agent_unavailable", `the agent did not answer within ${limitMs} ms`);

/** `onLate` gives up on the work and says which error that is. */
async function withLimit<T>(work: Promise<T>, limitMs: number, onLate: () => Error): Promise<T> {
  const expired = Promise.withResolvers<never>();
  const timer = setTimeout(() => expired.reject(onLate()), limitMs);
  try {
    return await Promise.race([work, expired.promise]);
  } finally {
    clearTimeout(timer);
  }
}
