/** `session.processes`, the named processes of a session. */
import type { ProcessInfo, ProcessList, ProcessLogs, ProcessStart } from "@vivarium/contract/api";
import { decodeBase64 } from "./base64.ts";
import { VivariumError } from "./errors.ts";
import { readItems } from "./read-items.ts";
import type { ServerSentEvent } from "./sse.ts";
import { type CallOptions, getJson, postJson, sendJson, sessionPath, type Transport } from "./transport.ts";

/** A piece of a process's output; it may begin or end inside a character. */
export interface LogChunk {
  stream: "stdout" | "stderr";
  data: Uint8Array;
}

/** The longest timer, 24.8 days: a longer one fires at once. No session is live that long, so every log ends before. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Named processes of one session, which outlive the request that started them, pauses and forks
 * (docs/spec/processes.md). Reached as `client.session(id).processes`. Every call wakes a paused session; an unknown
 * name is `not_found`.
 */
export class Processes {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#path = sessionPath(sessionId, "/processes");
  }

  /**
   * Starts a command under a name of 1 to 63 characters (a-z, 0-9, hyphens). `keep_alive` keeps the session from
   * pausing while the command runs. Rejects with `conflict` when a running process has the name, or 32 are running. A
   * command that cannot be spawned is a result, `exited` with 127 or 126.
   *
   * @example
   * await session.processes.start({ name: "web", command: ["python3", "-m", "http.server"] });
   */
  start(request: ProcessStart, options: CallOptions = {}): Promise<ProcessInfo> {
    return postJson(this.#transport, this.#path, request, { ...options, repeatable: false });
  }

  /**
   * Running and exited processes, oldest first.
   *
   * @example
   * const { processes } = await session.processes.list();
   */
  list(options: CallOptions = {}): Promise<ProcessList> {
    return getJson(this.#transport, this.#path, options);
  }

  /**
   * One process. An exited process has `ended_at` and `exit_code` (128 + the signal, if a signal killed it).
   *
   * @example
   * const { state } = await session.processes.get("web");
   */
  get(name: string, options: CallOptions = {}): Promise<ProcessInfo> {
    return getJson(this.#transport, this.#pathOf(name), options);
  }

  /**
   * Ends a process with SIGTERM, after 5 s with SIGKILL, and resolves when it has exited. A process that has exited
   * stays as it is.
   *
   * @example
   * const { exit_code } = await session.processes.kill("web");
   */
  kill(name: string, options: CallOptions = {}): Promise<ProcessInfo> {
    const path = this.#pathOf(name);
    return sendJson(this.#transport, { method: "DELETE", path, repeatable: true, ...options });
  }

  /**
   * The last 4 MiB of each output stream; in base64 if that is not UTF-8 (`stdout_encoding`, `stderr_encoding`).
   *
   * @example
   * const { stdout } = await session.processes.logs("web");
   */
  logs(name: string, options: CallOptions = {}): Promise<ProcessLogs> {
    return getJson(this.#transport, `${this.#pathOf(name)}/logs`, options);
  }

  /**
   * Yields the stored output (10 MiB of each stream), then new output, until the process has exited. Throws
   * `log_failed` when the session is paused or destroyed meanwhile, `stream_interrupted` when the connection breaks.
   * Leaving the loop does not affect the process.
   *
   * @example
   * for await (const { stream, data } of session.processes.followLogs("web")) process[stream].write(data);
   */
  followLogs(name: string, options: CallOptions = {}): AsyncGenerator<LogChunk, void, void> {
    const path = `${this.#pathOf(name)}/logs`;
    return readItems(
      this.#transport,
      { method: "GET", path, query: { follow: true }, repeatable: true, ...options },
      {
        toItem: toLogChunk,
        last: "eof",
        failure: "log_failed",
        broken: "the log broke off before its end; the process goes on, follow it again",
        retryable: true,
      },
    );
  }

  /**
   * Resolves when the process has exited and its output has ended. Rejects with `wait_timeout` after `timeoutMs`
   * (default: no limit), and as `followLogs` does.
   *
   * @example
   * const { exit_code } = await session.processes.waitForExit("build", { timeoutMs: 600_000 });
   */
  async waitForExit(name: string, options: CallOptions & { timeoutMs?: number } = {}): Promise<ProcessInfo> {
    const { signal, timeoutMs } = options;
    const late =
      timeoutMs === undefined ? undefined : AbortSignal.timeout(Math.min(timeoutMs, LONGEST_TIMER_MS));
    const signals = [signal, late].filter((each) => each !== undefined);
    try {
      for await (const _chunk of this.followLogs(name, { signal: AbortSignal.any(signals) }));
    } catch (error) {
      if (!late?.aborted || signal?.aborted) throw error;
      throw new VivariumError("wait_timeout", `process ${name} is still running after ${timeoutMs} ms`);
    }
    return await this.get(name, { signal });
  }

  #pathOf(name: string): string {
    return `${this.#path}/${encodeURIComponent(name)}`;
  }
}

function toLogChunk({ event, data }: ServerSentEvent): LogChunk | undefined {
  return event === "stdout" || event === "stderr" ? { stream: event, data: decodeBase64(data) } : undefined;
}
