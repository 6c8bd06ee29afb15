import type { WebSocket } from "ws";
import { type CallOptions, sessionPath, type Transport } from "../transport.ts";
import { ChunkQueue } from "./chunk-queue.ts";
import { closedBy, disconnected, NORMAL_CLOSE, openWebSocket, sendAll } from "./web-socket.ts";

/** Types of messages (docs/spec/terminals.md). */
const FRAME = { data: 0x01, resize: 0x02, signal: 0x03, exit: 0x05, error: 0x06 } as const;
/** Output buffered here for a slow reader; beyond it the guest is paused. */
const WAITING_BYTES = 256 * 1024;

/** Options of a terminal; each has a default. */
export interface TerminalOptions extends CallOptions {
  /** 1 to 1,000. Default: 24. */
  rows?: number;
  /** 1 to 1,000. Default: 80. */
  cols?: number;
  /** argv; default: the login shell. */
  cmd?: readonly string[];
  /** Default: /workspace. */
  cwd?: string;
  /** `TERM`; default: xterm-256color. */
  term?: string;
  /** `COLORTERM`; default: not set. */
  colorterm?: string;
  /** A name under which the terminal stays when its clients leave, and can be attached to again. */
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
 * An open terminal (docs/spec/terminals.md). Iterating yields its output as raw bytes, until the program has exited; it
 * throws `disconnected` when the service or the network ends it before, and the signal's reason when the signal was
 * aborted. Output that is not read blocks the program. Leaving a loop leaves the terminal open.
 *
 * @example
 * const terminal = await session.terminal({ cmd: ["python3"] });
 * await terminal.write("print(6 * 7)\nexit(3)\n");
 * for await (const bytes of terminal) process.stdout.write(bytes);
 * console.log(await terminal.exit); // 3
 */
export class Terminal implements AsyncIterable<Uint8Array> {
  /**
   * The program's exit code, 128 + the signal that killed it; it resolves after all output was read. Rejects as
   * iterating throws, and with `disconnected` after `close`.
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
    // A caller that never reads `exit` gets no unhandled rejection.
    this.exit.catch(() => undefined);
    webSocket.on("message", (message: Buffer) => this.#receive(message));
    webSocket.once("close", (code, reason) => {
      if (signal?.aborted) this.#fail(signal.reason);
      else if (this.#isClosedHere) this.#fail(disconnected("the terminal was closed"), { quietly: true });
      else this.#fail(closedBy(code, reason));
    });
    webSocket.resume();
  }

  /** Types into the terminal. Resolves when the connection has taken it, at the speed at which the program reads. */
  write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    return sendAll(this.#webSocket, bytes, FRAME.data);
  }

  /** Changes the size, 1 to 1,000 each; the program gets a SIGWINCH. */
  async resize(rows: number, cols: number): Promise<void> {
    const payload = new DataView(new ArrayBuffer(4));
    payload.setUint16(0, rows);
    payload.setUint16(2, cols);
    await sendAll(this.#webSocket, new Uint8Array(payload.buffer), FRAME.resize);
  }

  /** Sends a signal by its number on Linux, 1 to 31, to what runs in the foreground. */
  async signal(number: number): Promise<void> {
    await sendAll(this.#webSocket, Uint8Array.of(number), FRAME.signal);
  }

  /** Leaves. A terminal without a name is hung up; `on_pty_detach` decides what happens to the session. */
  async close(): Promise<void> {
    const { readyState, CLOSED } = this.#webSocket;
    if (readyState === CLOSED) return;
    this.#isClosedHere = true;
    const closed = new Promise((resolve) => this.#webSocket.once("close", resolve));
    this.#webSocket.close(NORMAL_CLOSE);
    // Otherwise the service's answer to the close would not be read.
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
      // Only the close is left to come, also when a lot is buffered here.
      this.#webSocket.resume();
    }
  }

  #fail(error: unknown, { quietly = false } = {}): void {
    if (this.#hasExited) return;
    this.#output.end(quietly ? undefined : error);
    this.#exit.reject(error);
  }
}
