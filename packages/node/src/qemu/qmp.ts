/** Client of QEMU's monitor (QMP), which exchanges one JSON object per line. */
import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { sleep } from "@vivarium/kit/clock";

type QmpCommand =
  | "qmp_capabilities"
  | "stop"
  | "cont"
  | "quit"
  | "query-status"
  | "migrate-incoming"
  | "migrate-set-capabilities"
  | "xen-save-devices-state"
  | "ringbuf-read"
  | "query-block"
  | "blockdev-add"
  | "qom-set";

const COMMAND_LIMIT_MS = 30_000;

export class Qmp {
  readonly #socket: Socket;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #listeners = new Set<(event: string, data: Record<string, unknown>) => void>();
  #nextId = 1;
  /** Resolves when the monitor's connection closes, as it does when QEMU ends. */
  readonly closed: Promise<void>;

  private constructor(socket: Socket) {
    this.#socket = socket;
    const lines = createInterface({ input: socket });
    lines.on("line", (line) => this.#onLine(line));
    lines.on("error", () => {});
    this.closed = new Promise((resolve) => {
      socket.on("close", () => {
        for (const waiting of this.#waiting.values()) waiting.reject(new Error("QEMU closed its monitor"));
        this.#waiting.clear();
        resolve();
      });
    });
    socket.on("error", () => {});
  }

  /** Connects as soon as QEMU listens. `alive` ends the wait if the process is gone. */
  static async connect(socketPath: string, options: { limitMs: number; alive: () => boolean }): Promise<Qmp> {
    const deadline = Date.now() + options.limitMs;
    for (;;) {
      const socket = await tryConnect(socketPath);
      if (socket) {
        const qmp = new Qmp(socket);
        await qmp.execute("qmp_capabilities");
        return qmp;
      }
      if (!options.alive()) throw new Error("QEMU ended before its monitor answered");
      if (Date.now() > deadline)
        throw new Error(`QEMU's monitor did not answer within ${options.limitMs} ms`);
      await sleep(4);
    }
  }

  execute(command: QmpCommand, args?: Record<string, unknown>): Promise<unknown> {
    if (this.isClosed) return Promise.reject(new Error("QEMU closed its monitor"));
    const id = this.#nextId++;
    const answer = Promise.withResolvers<unknown>();
    const timer = setTimeout(() => {
      this.#waiting.delete(id);
      answer.reject(new Error(`QEMU did not answer ${command} within ${COMMAND_LIMIT_MS} ms`));
    }, COMMAND_LIMIT_MS);
    this.#waiting.set(id, answer);
    this.#socket.write(`${JSON.stringify({ execute: command, arguments: args, id })}\n`);
    return answer.promise.finally(() => clearTimeout(timer));
  }

  get isClosed(): boolean {
    return this.#socket.destroyed;
  }

  onEvent(listener: (event: string, data: Record<string, unknown>) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#socket.destroy();
  }

  #onLine(line: string): void {
    const message = readObject(line);
    if (message === undefined) {
      this.#socket.destroy();
      return;
    }
    if (typeof message.event === "string") {
      for (const listener of this.#listeners)
        listener(message.event, (message.data ?? {}) as Record<string, unknown>);
      return;
    }
    const waiting = this.#waiting.get(message.id as number);
    if (!waiting) return;
    this.#waiting.delete(message.id as number);
    if (message.error) waiting.reject(new Error(`QEMU refused: ${(message.error as { desc: string }).desc}`));
    else waiting.resolve(message.return);
  }
}

/** Parses a line. Undefined if it is not an object: a QEMU that its guest has taken over may send anything. */
function readObject(line: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function tryConnect(socketPath: string): Promise<Socket | null> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    socket.once("connect", () => resolve(socket));
    socket.once("error", () => resolve(null));
  });
}

/** Loads a device state into a QEMU that waits with `-incoming defer`. Returns once it is applied. */
export async function loadDeviceState(qmp: Qmp, statePath: string): Promise<void> {
  await qmp.execute("migrate-set-capabilities", { capabilities: [{ capability: "events", state: true }] });
  const loaded = Promise.withResolvers<void>();
  const stopListening = qmp.onEvent((event, data) => {
    if (event !== "MIGRATION") return;
    if (data.status === "completed") loaded.resolve();
    if (data.status === "failed") loaded.reject(new Error("QEMU could not load the device state"));
  });
  void qmp.closed.then(() => loaded.reject(new Error("QEMU ended while it loaded the device state")));
  try {
    await qmp.execute("migrate-incoming", { uri: `file:${statePath}` });
    await loaded.promise;
  } finally {
    stopListening();
  }
}
