/**
 * HTTP/2 client of one machine's agent. It reconnects by itself: a broken connection fails the requests in flight,
 * and the next request opens a new one. Every answer has a limit in size and time. An agent that breaks a limit makes
 * only its own session unavailable.
 */
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import type { Socket } from "node:net";
import {
  AgentHealth,
  Frozen,
  GENERATION,
  GUEST_LIMITS,
  type Resumed,
  ResumedAck,
  VolumeAttached,
} from "@vivarium/contract/guest";
import { KIB, MIB } from "@vivarium/kit/sizes";
import { z } from "zod";
import { AgentSilence, NodeError } from "../node-error.ts";
import { type AgentAnswer, cancel, readAnswer, statusOf, unanswered, withLimit } from "./answers.ts";
import { openChannel } from "./channel.ts";

const CONNECT_LIMIT_MS = 10_000;
const CALL_LIMIT_MS = 20_000;
/** Time limit for the headers of an answer. For a command that was sent, the error then is not retryable. */
const SPAWN_LIMIT_MS = 60_000;
/** After this silence the agent must answer a ping before it gets a request. */
const SILENCE_MS = 2_000;
const PING_LIMIT_MS = 8_000;
/** Receive window of a stream: large enough that a round trip of flow control does not bound its throughput. */
const WINDOW_BYTES = MIB;
/**
 * Largest payload of an HTTP/2 frame. With its header of 9 bytes it is a whole number of writes to the guest's port,
 * whose driver takes 32 KiB at once. Only the first write is assembled from header and payload; the others are slices.
 */
const FRAME_BYTES = 8 * 32 * KIB - 9;
/** Receive window of the connection: large enough that a terminal or log without a reader does not block the others. */
const CONNECTION_WINDOW_BYTES = 32 * WINDOW_BYTES;

export interface OpenRequest {
  method: string;
  path: string;
  /** Whether the request has no body. */
  isWhole?: boolean;
  headers?: Record<string, string>;
  /** Whether the daemon itself makes the request; streams are reserved for these. */
  isOwn?: boolean;
  /** Aborts when the caller is gone. */
  signal?: AbortSignal;
}

/** Streams reserved for the daemon itself, so that a busy guest can still be frozen. */
const OWN_STREAMS = 16;

export class AgentClient {
  #socketPath: string;
  #socket: Socket | undefined;
  #session: Promise<ClientHttp2Session> | null = null;
  #heardAt = 0;
  /** Pings that wait for their answer, by connection. */
  readonly #signs = new WeakMap<ClientHttp2Session, Promise<void>>();
  /** Number of streams in flight. */
  #streams = 0;
  #closed = false;

  constructor(socketPath: string) {
    this.#socketPath = socketPath;
  }

  /** Sets the path for later reconnects after the machine's folder was renamed. */
  moveTo(socketPath: string): void {
    this.#socketPath = socketPath;
  }

  health(): Promise<AgentHealth> {
    return this.#call("GET", "/v1/health", undefined, AgentHealth);
  }

  resumed(body: Resumed): Promise<ResumedAck> {
    return this.#call("POST", "/v1/resumed", body, ResumedAck);
  }

  attachVolume(): Promise<VolumeAttached> {
    return this.#call("POST", "/v1/volume/attach", {}, VolumeAttached);
  }

  async command(path: "/v1/thaw" | "/v1/power-off" | "/v1/volume/detach"): Promise<void> {
    await this.#call("POST", path, {}, z.object({}));
  }

  async freeze(): Promise<Frozen> {
    return await this.#call("POST", "/v1/freeze", {}, Frozen);
  }

  /** Starts a request. The caller sends its body, reads its answer, and closes the stream to give up. */
  async open(request: OpenRequest): Promise<ClientHttp2Stream> {
    const { method, path, isWhole = false, headers, isOwn = false, signal } = request;
    const session = await this.#connect();
    await this.#ensureAlive(session);
    if (signal?.aborted) throw new NodeError("internal", "the caller left");
    // Node would queue a stream past the limit, and the caller could not distinguish it from one that the agent has.
    if (this.#streams >= GUEST_LIMITS.concurrentStreams - (isOwn ? 0 : OWN_STREAMS))
      throw new NodeError(
        "agent_unavailable",
        "the machine's agent has as many requests as it takes at once",
      );
    const stream = beginRequest(session, { ":method": method, ":path": path, ...headers }, isWhole);
    const leave = () => cancel(stream);
    signal?.addEventListener("abort", leave, { once: true });
    this.#streams += 1;
    stream.once("close", () => {
      this.#streams -= 1;
      signal?.removeEventListener("abort", leave);
    });
    return stream.on("error", () => {});
  }

  /** Sends a request and returns its answer's headers. The caller reads or closes the stream. */
  async request(
    method: string,
    path: string,
    { body, isRepeatable, isOwn }: { body?: unknown; isRepeatable: boolean; isOwn?: boolean },
  ): Promise<AgentAnswer> {
    const stream = await this.open({ method, path, isWhole: body === undefined, isOwn });
    if (body !== undefined) stream.end(JSON.stringify(body));
    return await this.answerTo(stream, { isRepeatable });
  }

  /** Waits for the headers of the answer. `isRepeatable`: repeating the request does nothing twice. */
  async answerTo(
    stream: ClientHttp2Stream,
    { isRepeatable, limitMs = SPAWN_LIMIT_MS }: { isRepeatable: boolean; limitMs?: number },
  ): Promise<AgentAnswer> {
    const status = await withLimit(statusOf(stream, isRepeatable), limitMs, () => {
      cancel(stream);
      return unanswered(isRepeatable, "the agent took the request and did not answer");
    });
    this.#heardAt = Date.now();
    return { status, stream };
  }

  /**
   * Fails all requests in flight by destroying the socket, for a stopped guest: an orderly end of HTTP/2 would reach
   * the agent only once it continues, and would then end its work in progress.
   */
  breakOff(): void {
    this.#socket?.destroy();
    this.#drop();
  }

  close(): void {
    this.#closed = true;
    this.#drop();
  }

  async #call<T>(method: string, path: string, body: unknown, schema: z.ZodType<T>): Promise<T> {
    const asked = this.request(method, path, { body, isRepeatable: true, isOwn: true });
    const answer = await withLimit(asked, CALL_LIMIT_MS, () => {
      this.#drop();
      return late(CALL_LIMIT_MS);
    });
    return await withLimit(readAnswer(answer, schema), CALL_LIMIT_MS, () => {
      cancel(answer.stream);
      return late(CALL_LIMIT_MS);
    });
  }

  #connect(): Promise<ClientHttp2Session> {
    if (this.#closed) return Promise.reject(new NodeError("machine_gone", "the machine has ended"));
    this.#session ??= this.#reopen();
    return this.#session;
  }

  #reopen(): Promise<ClientHttp2Session> {
    const forget = () => {
      if (this.#session === opening) this.#session = null;
    };
    const opening = this.#open().then(
      (session) => session.once("close", forget),
      (cause) => {
        forget();
        throw new AgentSilence("the agent inside the machine does not answer", { cause });
      },
    );
    return opening;
  }

  async #open(): Promise<ClientHttp2Session> {
    const socket = await openChannel(this.#socketPath, CONNECT_LIMIT_MS);
    this.#socket = socket;
    const session = connect("http://agent", {
      createConnection: () => socket,
      settings: { enablePush: false, initialWindowSize: WINDOW_BYTES, maxFrameSize: FRAME_BYTES },
      maxHeaderListPairs: 32,
      maxSessionMemory: 16,
      peerMaxConcurrentStreams: GUEST_LIMITS.concurrentStreams,
    });
    session.on("error", () => {});
    session.setLocalWindowSize?.(CONNECTION_WINDOW_BYTES);
    session.unref();
    return session;
  }

  /** After a silence, waits for a ping; concurrent callers share it, because a connection allows only a few at once. */
  async #ensureAlive(session: ClientHttp2Session): Promise<void> {
    if (Date.now() - this.#heardAt < SILENCE_MS) return;
    const known = this.#signs.get(session);
    const sign = known ?? this.#signOfLife(session).finally(() => this.#signs.delete(session));
    if (!known) this.#signs.set(session, sign);
    await sign;
  }

  async #signOfLife(session: ClientHttp2Session): Promise<void> {
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

/** Starts a request. A connection that just broke throws, which becomes `agent_unavailable`. */
function beginRequest(session: ClientHttp2Session, headers: Record<string, string>, endStream: boolean) {
  try {
    return session.request(headers, { endStream });
  } catch (cause) {
    throw new NodeError("agent_unavailable", "the agent broke the connection", { cause });
  }
}

export function assertGeneration(health: AgentHealth): void {
  if (health.generation !== GENERATION) {
    throw new Error(
      `its agent is of another version of Vivarium: it speaks generation ${health.generation}, this node speaks ${GENERATION}. ` +
        `What was saved with that version loads there; a baseline is baked again by ./setup`,
    );
  }
}

const late = (limitMs: number) => new AgentSilence(`the agent did not answer within ${limitMs} ms`);
