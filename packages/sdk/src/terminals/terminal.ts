/** `Terminal`, a client of a session's terminal. */
import type { WebSocket } from "ws";
import { type CallOptions, sessionPath, type Transport } from "../transport.ts";
import { ChunkQueue } from "./chunk-queue.ts";
import { closedBy, disconnected, NORMAL_CLOSE, openWebSocket, sendAll } from "./web-socket.ts";

/** Types of messages: the first byte of each (docs/spec/terminals.md). */
const FRAME = { data: 0x01, resize: 0x02, signal: 0x03, exit: 0x05, error: 0x06 } as const;
/** Bytes of output buffered for a slow reader; beyond it the guest cannot send more. */
const WAITING_BYTES = 256 * 1024;

/** Options of a terminal. */
export interface TerminalOptions extends CallOptions {
  /** Height in characters, 1 to 1,000. Default: 24. */
  rows?: number;
  /** Width in characters, 1 to 1,000. Default: 80. */
  cols?: number;
  /** Command to run, as argv. Default: the login shell. */
  cmd?: readonly string[];
  /** Working directory. Default: /workspace. */
  cwd?: string;
  /** Value of `TERM`. Default: xterm-256color. */
  term?: string;
  /** Value of `COLORTERM`. Default: not set. */
  colorterm?: string;
  /** Name of the terminal: a named terminal stays open without clients, and the next client attaches to it again. */
  terminal?: string;
}

export async function openTerminal(
  transport: Transport,
  sessionId: string,
  { signal, ...query }: TerminalOptions = {},
): Promise<Terminal> {
  const path = sessionPath(sessionId, "/pty");
  return new Terminal(await openWebSocket(transport, { path, query, signal }), signal);
}

/**
 * An open terminal (docs/spec/terminals.md). Iterating yields its output as raw bytes until the program has exited. It
 * throws `disconnected` when the service or the network ends the connection before, and the signal's reason when the
 * signal is aborted. Unread output blocks the program. Leaving the loop keeps the terminal open.
 *
 * @example
 * const terminal = await session.terminal({ cmd: ["python3"] });
 * await terminal.write("print(6 * 7)\nexit(3)\n");
 * for await (const bytes of terminal) process.stdout.write(bytes);
 * console.log(await terminal.exit); // 3
 */
export class Terminal implements AsyncIterable<Uint8Array> {
  /**
   * Resolves to the program's exit code, or 128 + the signal that killed it, once all output was received: unread
   * output can delay it. Rejects as iterating throws, and with `disconnected` after `close`.
   */
  readonly exit: Promise<number>;
  readonly #webSocket: WebSocket;
  readonly #output: ChunkQueue;
  readonly #exit = Promise.withResolvers<number>();
  #hasExited = false;
  #isClosedHere = false;

  constructor(webSocket: WebSocket, signal?: AbortSignal) {
    this.#webSocket = webSocket;
    this.#output = new ChunkQueue({
      fullBytes: WAITING_BYTES,
      pause: () => webSocket.pause(),
      resume: () => webSocket.resume(),
    });
    this.exit = this.#exit.promise;
    // A caller that never reads `exit` must not get an unhandled rejection.
    this.exit.catch(() => undefined);
    webSocket.on("message", (message: Buffer) => this.#receive(message));
    webSocket.once("close", (code, reason) => {
      if (signal?.aborted) this.#fail(signal.reason);
      else if (this.#isClosedHere) this.#fail(disconnected("the terminal was closed"), { quietly: true });
      else this.#fail(closedBy(code, reason));
    });
    webSocket.resume();
  }

  /** Sends input. Resolves when the connection has taken it, which is as fast as the program reads. */
  write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    return sendAll(this.#webSocket, bytes, FRAME.data);
  }

  /** Changes the size, 1 to 1,000 rows and columns; the program gets a SIGWINCH. */
  async resize(rows: number, cols: number): Promise<void> {
    const payload = new DataView(new ArrayBuffer(4));
    payload.setUint16(0, rows);
    payload.setUint16(2, cols);
    await sendAll(this.#webSocket, new Uint8Array(payload.buffer), FRAME.resize);
  }

  /** Sends a signal, by its Linux number from 1 to 31, to the foreground process group. */
  async signal(number: number): Promise<void> {
    await sendAll(this.#webSocket, Uint8Array.of(number), FRAME.signal);
  }

  /** Closes the connection. A terminal without a name is hung up; `on_pty_detach` decides about the session. */
  async close(): Promise<void> {
    const { readyState, CLOSED } = this.#webSocket;
    if (readyState === CLOSED) return;
    this.#isClosedHere = true;
    const closed = new Promise((resolve) => this.#webSocket.once("close", resolve));
    this.#webSocket.close(NORMAL_CLOSE);
    // A paused connection would not read the service's answer to the close.
    this.#webSocket.resume();
    await closed;
  }

  [Symbol.asyncIterator](): AsyncIterator<Uint8Array, undefined> {
    return { next: () => this.#output.next() };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #receive(message: Buffer): void {
    const payload = message.subarray(1);
    if (message[0] === FRAME.data && !this.#isClosedHere) this.#output.push(payload);
    if (message[0] === FRAME.error) this.#fail(disconnected(payload.toString()));
    if (message[0] === FRAME.exit && payload.length >= 4) {
      this.#hasExited = true;
      this.#output.end();
      this.#exit.resolve(payload.readInt32BE());
      // Only the close is left to come, so a full buffer need not pause the connection.
      this.#webSocket.resume();
    }
  }

  #fail(error: unknown, { quietly = false } = {}): void {
    if (this.#hasExited) return;
    this.#output.end(quietly ? undefined : error);
    this.#exit.reject(error);
  }
}
