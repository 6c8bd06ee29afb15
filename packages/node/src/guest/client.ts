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
/**
 * After this silence a connection with callers' requests in flight is given up. A guest that reaches its limits, as with its
 * page cache or its disk, answers late: the request that waits fails, and the commands that run keep their connection.
 */
const DEAD_AFTER_MS = 120_000;
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

type Connection = Promise<ClientHttp2Session>;

interface Limits {
  silenceMs: number;
  pingMs: number;
  callMs: number;
  deadAfterMs: number;
}

const LIMITS: Limits = {
  silenceMs: SILENCE_MS,
  pingMs: PING_LIMIT_MS,
  callMs: CALL_LIMIT_MS,
  deadAfterMs: DEAD_AFTER_MS,
};

/** Streams reserved for the daemon itself, so that a busy guest can still be frozen. */
const OWN_STREAMS = 16;

export class AgentClient {
  #socketPath: string;
  #socket: Socket | undefined;
  #session: Connection | null = null;
  #heardAt = 0;
  /** Pings that wait for their answer, by connection. */
  readonly #pings = new WeakMap<ClientHttp2Session, Promise<void>>();
  /** Number of streams in flight, and how many of them are those of callers. */
  #streams = 0;
  #ofCallers = 0;
  #closed = false;
  /** How much the connection had received at the last late answer that came with news, and when. */
  #lateAt: { socket: Socket | undefined; bytes: number; at: number } = { socket: undefined, bytes: 0, at: 0 };
  readonly #limits: Limits;

  constructor(socketPath: string, limits: Partial<Limits> = {}) {
    this.#socketPath = socketPath;
    this.#limits = { ...LIMITS, ...limits };
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
    const connection = this.#connect();
    const session = await connection;
    await this.#ensureAlive(connection, session);
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
    const ofCallers = isOwn ? 0 : 1;
    this.#streams += 1;
    this.#ofCallers += ofCallers;
    stream.once("close", () => {
      this.#streams -= 1;
      this.#ofCallers -= ofCallers;
      signal?.removeEventListener("abort", leave);
    });
    return stream.on("error", () => {});
  }

  /** Sends a request and returns its answer's headers. The caller reads or closes the stream. */
  async request(
    method: string,
    path: string,
    {
      body,
      isRepeatable,
      ...options
    }: { body?: unknown; isRepeatable: boolean } & Pick<OpenRequest, "isOwn" | "signal">,
  ): Promise<AgentAnswer> {
    const stream = await this.open({ method, path, isWhole: body === undefined, ...options });
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
    const { callMs } = this.#limits;
    const expired = new AbortController();
    const connection = this.#connect();
    connection.catch(() => {});
    const options = { body, isRepeatable: true, isOwn: true, signal: expired.signal };
    const answer = await withLimit(this.request(method, path, options), callMs, () => {
      expired.abort();
      this.#dropIfDead(connection);
      return late(callMs);
    });
    return await withLimit(readAnswer(answer, schema), callMs, () => {
      cancel(answer.stream);
      return late(callMs);
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
  async #ensureAlive(connection: Connection, session: ClientHttp2Session): Promise<void> {
    const { silenceMs, pingMs } = this.#limits;
    if (Date.now() - this.#heardAt < silenceMs) return;
    await withLimit(this.#pingOf(session), pingMs, () => {
      this.#dropIfDead(connection);
      return late(pingMs);
    });
  }

  /** Resolves when the agent answers the ping, however late. */
  #pingOf(session: ClientHttp2Session): Promise<void> {
    const known = this.#pings.get(session);
    if (known !== undefined) return known;
    const pong = new Promise<void>((resolve, reject) => {
      const sent = session.ping((error) => (error ? reject(error) : resolve()));
      if (!sent) reject(new Error("no ping could be sent"));
    });
    const ping = pong
      .then(
        () => {
          this.#heardAt = Date.now();
        },
        (cause) => {
          throw new NodeError("agent_unavailable", "the agent broke the connection", { cause });
        },
      )
      .finally(() => this.#pings.delete(session));
    // Each caller waits for a while only, and the last one may have left.
    ping.catch(() => {});
    this.#pings.set(session, ping);
    return ping;
  }

  /** Gives up a connection after a late answer, but one with callers' requests only after a long silence. */
  #dropIfDead(connection: Connection): void {
    // Another caller may have given it up already; what came after it is not late.
    if (connection !== this.#session) return;
    const now = { socket: this.#socket, bytes: this.#socket?.bytesRead ?? 0, at: Date.now() };
    const { socket, bytes, at } = this.#lateAt;
    const isSilent = socket === now.socket && bytes === now.bytes;
    if (!isSilent) this.#lateAt = now;
    if (this.#ofCallers === 0 || (isSilent && now.at - at > this.#limits.deadAfterMs)) this.#drop();
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
