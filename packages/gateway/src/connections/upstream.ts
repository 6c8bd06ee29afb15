/** The origin's side of a guest's connection: TLS that is verified before anything is sent, in either version of HTTP. */
import type { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";
import {
  connect,
  createSecureContext,
  getCACertificates,
  type SecureContext,
  type TLSSocket,
} from "node:tls";
import type { Guard } from "@vivarium/http1/guard";
import type { Header } from "@vivarium/http1/headers";

export interface UpstreamRequest {
  method: string;
  target: string;
  headers: readonly Header[];
  hasBody: boolean;
}

export interface UpstreamAnswer {
  status: number;
  headers: readonly Header[];
  body: Readable;
  /** The answer is its head alone. */
  isLast: boolean;
  /** Resolves once the body has ended. */
  trailers: () => Promise<readonly Header[]>;
}

/** Each request gets one call of `onAnswer` or `onFailure`. A failure may follow an answer. */
export interface Hearing {
  onAnswer: (answer: UpstreamAnswer) => void;
  onFailure: (error: Error) => void;
  /** Wraps handlers of events: an exception in one ends this exchange alone. */
  guard: Guard;
}

export interface Sending {
  /** Receives the request's body. */
  body: Writable;
  /** Whether the request has a connection to the origin, so that its headers may have left. */
  isSent: () => boolean;
  destroy(): void;
}

export interface Upstream {
  send(request: UpstreamRequest, hearing: Hearing): Sending;
  /** False: the next request needs another one. */
  readonly isUsable: boolean;
  destroy(): void;
}

/** Most interim answers (1xx) to one request. */
export const MAX_INTERIM = 16;
/** Most bytes of the headers of one answer. */
export const MAX_ANSWER_HEADER_BYTES = 64 * 1024;

/** Trusts the host's certificate store; the one that comes with Node.js if the host has none. */
export function systemRoots(more: readonly string[] = []): SecureContext {
  const system = getCACertificates("system");
  const ca = [...(system.length > 0 ? system : getCACertificates("bundled")), ...more];
  return createSecureContext({ ca, minVersion: "TLSv1.2" });
}

/** Rejects unless the server proves to be the host in time. */
export async function secure(
  raw: Socket,
  input: { host: string; roots: SecureContext; protocols: string[]; withinMs: number },
): Promise<TLSSocket> {
  const { host, roots, protocols, withinMs } = input;
  raw.allowHalfOpen = false;
  const socket = connect({
    ...{ socket: raw, host, servername: host, secureContext: roots },
    // Explicit, because an environment variable could turn verification off.
    ...{ ALPNProtocols: protocols, rejectUnauthorized: true },
  });
  // Without a listener an error would end the process. Users of the socket add their own.
  socket.on("error", () => {});
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const late = setTimeout(() => reject(new Error("the TLS handshake takes too long")), withinMs);
  socket.once("secureConnect", resolve).once("error", reject);
  socket.once("close", () => reject(new Error("the server closed during the TLS handshake")));
  try {
    await promise;
    return socket;
  } catch (error) {
    raw.destroy();
    socket.destroy();
    throw error;
  } finally {
    clearTimeout(late);
  }
}
