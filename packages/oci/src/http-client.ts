/** Sends single requests over HTTP/1.1 to servers that are not trusted: by a given dial, within limits, without redirects. */
import { once } from "node:events";
import { isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { hasCode } from "@vivarium/kit/unknown-error";
import { Agent, type Dispatcher, request } from "undici";
import type { Dial } from "./dial.ts";
import type { PullLimits } from "./limits.ts";
import { pacedChunks } from "./paced-chunks.ts";
import { RegistryError } from "./registry-error.ts";

export interface HttpOptions {
  dial: Dial;
  /** Certificates (PEM) that are trusted instead of the system's. */
  ca?: string;
  limits: PullLimits;
}

export interface Answer {
  url: URL;
  status: number;
  /** All values of a header, as they arrived. */
  valuesOf: (name: string) => string[];
  /** Rejects with RegistryError. Ending the loop early closes the connection. */
  body: AsyncIterable<Uint8Array>;
  /** Drops the body. Every answer is either read or discarded. */
  discard: () => Promise<void>;
}

const MAX_HEADER_BYTES = 16 * 1024;
/** Bytes of a dropped body for which a connection is kept rather than opened anew. */
const DISCARD_BYTES = 64 * 1024;

export class HttpClient {
  readonly #connections: Agent;
  readonly #limits: PullLimits;

  constructor({ dial, ca, limits }: HttpOptions) {
    this.#limits = limits;
    this.#connections = new Agent({
      allowH2: false,
      pipelining: 1,
      connections: limits.concurrency + 1,
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: limits.headMs,
      bodyTimeout: limits.windowMs,
      connect: ({ hostname, protocol, port }, done) => {
        const isTls = protocol === "https:";
        const place = { host: hostname.replace(/^\[|\]$/g, ""), port: Number(port) || (isTls ? 443 : 80) };
        open({ dial, ca, isTls, ...place }, AbortSignal.timeout(limits.connectMs)).then(
          (socket) => done(null, socket),
          (error) => done(error, null),
        );
      },
    });
  }

  /** Rejects with RegistryError, or with the reason of the signal. */
  async get(url: URL, headers: Record<string, string>, signal: AbortSignal): Promise<Answer> {
    signal.throwIfAborted();
    try {
      const sent = { ...headers, "accept-encoding": "identity", "user-agent": "vivarium" };
      const answer = await request(url, { dispatcher: this.#connections, headers: sent, signal });
      return this.#answer(url, answer, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw failureOf(error, url.host);
    }
  }

  /** Ends all connections. */
  async close(): Promise<void> {
    await this.#connections.destroy();
  }

  #answer(url: URL, { statusCode, headers, body }: Dispatcher.ResponseData, signal: AbortSignal): Answer {
    const given = new Map(Object.entries(headers));
    return {
      url,
      status: statusCode,
      valuesOf: (name) => [given.get(name) ?? []].flat(),
      body: withFailures(pacedChunks(body, this.#limits), url.host, signal),
      discard: () => body.dump({ limit: DISCARD_BYTES }).catch(() => undefined),
    };
  }
}

async function* withFailures(
  chunks: AsyncIterable<Uint8Array>,
  host: string,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void> {
  try {
    yield* chunks;
  } catch (error) {
    signal.throwIfAborted();
    throw failureOf(error, host);
  }
}

interface Place {
  dial: Dial;
  ca: string | undefined;
  isTls: boolean;
  host: string;
  port: number;
}

async function open({ dial, ca, isTls, host, port }: Place, signal: AbortSignal): Promise<Socket> {
  const socket = await withinTime(dial(host, port, signal), signal, host);
  if (!isTls) return socket;
  const servername = isIP(host) ? "" : host;
  const secure = connectTls({ socket, host, servername, ca, ALPNProtocols: ["http/1.1"] });
  try {
    await once(secure, "secureConnect", { signal });
    return secure;
  } catch (error) {
    secure.destroy();
    socket.destroy();
    if (signal.aborted) throw slow(host);
    const isCertificate = secure.authorizationError !== null && secure.authorizationError !== undefined;
    const code = error instanceof Error && "code" in error ? ` (${error.code})` : "";
    const why = isCertificate ? `has no valid certificate${code}` : "does not speak TLS";
    throw new RegistryError("unreachable", `${host}:${port} ${why}`, {
      cause: error,
      isTransient: !isCertificate,
    });
  }
}

/** A dial that ignores its signal is given up; a connection that it makes later is closed. */
async function withinTime(dialled: Promise<Socket>, signal: AbortSignal, host: string): Promise<Socket> {
  const late = Promise.withResolvers<never>();
  const giveUp = () => {
    late.reject(slow(host));
    dialled.then((socket) => socket.destroy()).catch(() => undefined);
  };
  signal.addEventListener("abort", giveUp);
  try {
    return await Promise.race([dialled, late.promise]);
  } finally {
    signal.removeEventListener("abort", giveUp);
  }
}

function slow(host: string): RegistryError {
  return new RegistryError("timed_out", `${host} took too long to connect`, { isTransient: true });
}

function failureOf(error: unknown, host: string): RegistryError {
  if (error instanceof RegistryError) return error;
  if (hasCode(error, "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT"))
    return new RegistryError("timed_out", `${host} stopped sending`, { cause: error, isTransient: true });
  const why = hasCode(error, "UND_ERR_SOCKET", "ECONNRESET", "EPIPE")
    ? "broke the connection"
    : "does not speak HTTP";
  return new RegistryError("registry_failed", `${host} ${why}`, { cause: error, isTransient: true });
}
