/** `client.sessions`, which creates, lists, pauses, forks and ends sessions. */
import type {
  Archive,
  EndReason,
  ExecRequest,
  ExecResult,
  Fork,
  ForkResult,
  ListState,
  PausedSession,
  SessionCreate,
  SessionList,
  SessionRecord,
} from "@vivarium/contract/api";
import { VivariumError } from "./errors.ts";
import { type ExecEvent, execBuffered, execStream } from "./exec.ts";
import { paginate } from "./paginator.ts";
import {
  type CallOptions,
  getJson,
  postJson,
  sendDelete,
  sessionPath,
  type TimedOptions,
  type Transport,
} from "./transport.ts";

const WAIT_TIMEOUT_MS = 5 * 60_000;
const FIRST_POLL_MS = 50;
const SLOWEST_POLL_MS = 1000;

/** Virtual machines that keep their state between calls. Reached as `client.sessions`. */
export class Sessions {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Creates a session. Returns at once, usually with `state: "creating"`; a command sent to the session waits until it
   * is live. A retry after a broken connection never creates a second session.
   *
   * The session starts from a `template` or `from_checkpoint`. `idle_timeout_ms` pauses it after that long without
   * activity, `paused_ttl_ms` ends it after that long in pause, `max_lifetime_ms` limits its lifetime.
   *
   * @example
   * const session = await client.sessions.create({ size: "small", idle_timeout_ms: 60_000 });
   * console.log(session.session_id);
   */
  create(
    request: SessionCreate = {},
    options: TimedOptions & { idempotencyKey?: string } = {},
  ): Promise<SessionRecord> {
    const headers = { "idempotency-key": options.idempotencyKey ?? crypto.randomUUID() };
    return postJson(this.#transport, "/v1/sessions", request, { ...options, headers, repeatable: true });
  }

  /**
   * The session's record as it is now.
   *
   * @example
   * const { state } = await client.sessions.get(sessionId);
   */
  get(sessionId: string, options: TimedOptions = {}): Promise<SessionRecord> {
    return getJson(this.#transport, sessionPath(sessionId), options);
  }

  /**
   * Sessions that have not ended, newest first, at most `limit` (default: 20; at most 500).
   *
   * @example
   * const { sessions } = await client.sessions.list({ state: "live" });
   */
  list(
    filter: { state?: ListState; limit?: number; externalId?: string; cursor?: string } = {},
    options: CallOptions = {},
  ): Promise<SessionList> {
    const { state, limit, externalId: external_id, cursor } = filter;
    return getJson(this.#transport, "/v1/sessions", options, { state, limit, external_id, cursor });
  }

  /**
   * Ended sessions of the last 30 days, newest first, fetched page by page.
   *
   * @example
   * for await (const ended of client.sessions.history()) console.log(ended.session_id, ended.end_reason);
   */
  history(
    filter: { pageSize?: number } = {},
    options: CallOptions = {},
  ): AsyncGenerator<SessionRecord, void, void> {
    return paginate("sessions", (cursor) =>
      this.list({ state: "ended", limit: filter.pageSize, cursor }, options),
    );
  }

  /**
   * Ends a session: its machine is stopped and its disk deleted when the promise resolves.
   *
   * @example
   * await client.sessions.delete(session.session_id);
   */
  async delete(
    sessionId: string,
    options: CallOptions & { reason?: Extract<EndReason, "client_destroy" | "shell_exit"> } = {},
  ): Promise<void> {
    await sendDelete(this.#transport, sessionPath(sessionId), options, { reason: options.reason });
  }

  /**
   * Saves a session with its memory and processes and stops its machine; everything is durable when the promise
   * resolves. The next command, `resume`, or the time `wakeAt` (at most 90 days ahead) wakes it. Pausing a paused
   * session replaces its `wakeAt`, or clears it.
   *
   * @example
   * await client.sessions.pause(sessionId, { wakeAt: new Date(Date.now() + 3_600_000) });
   */
  pause(
    sessionId: string,
    request: { wakeAt?: Date | string } = {},
    options: TimedOptions = {},
  ): Promise<PausedSession> {
    const { wakeAt } = request;
    const wake_at = wakeAt instanceof Date ? wakeAt.toISOString() : wakeAt;
    return this.#change(sessionId, "pause", { wake_at }, true, options);
  }

  /**
   * Wakes a paused session, which is live when the promise resolves. Does nothing to a live session. Commands wake a
   * session themselves; this call wakes it earlier.
   *
   * @example
   * const { state } = await client.sessions.resume(sessionId); // "live"
   */
  resume(sessionId: string, options: TimedOptions = {}): Promise<SessionRecord> {
    return this.#change(sessionId, "resume", {}, true, options);
  }

  /**
   * Tries at once to store the state of a paused session whose `archive` has failed; the service does so every hour. Resolves
   * with the archive, which is `pending`.
   *
   * @example
   * const { status } = await client.sessions.retryArchive(sessionId); // "pending"
   */
  retryArchive(sessionId: string, options: CallOptions = {}): Promise<Archive> {
    return this.#change(sessionId, "archive/retry", {}, true, options);
  }

  /**
   * Makes `count` new sessions (default: 1) from this one's memory, processes and disk at one instant. All are live
   * when the promise resolves; if it rejects, no child exists, unless the answer was lost. Then the children may exist,
   * and the request is not repeated. The parent keeps running unchanged.
   *
   * @example
   * const { children } = await client.sessions.fork(sessionId, { count: 4 });
   */
  fork(sessionId: string, request: Fork = {}, options: TimedOptions = {}): Promise<ForkResult> {
    return this.#change(sessionId, "fork", request, false, options);
  }

  /**
   * Returns a session to one of its checkpoints, or to the checkpoint it was started from, by id or name. Memory,
   * processes and disk are replaced; id and settings stay. The session is live when the promise resolves.
   *
   * @example
   * await client.sessions.restore(sessionId, "before-upgrade");
   */
  restore(sessionId: string, checkpoint: string, options: TimedOptions = {}): Promise<SessionRecord> {
    return this.#change(sessionId, "restore", { checkpoint_id: checkpoint }, false, options);
  }

  /**
   * Runs a command to its end and returns its output, at most 4 MiB of each stream. A non-zero exit code and a timeout
   * are results, not errors.
   *
   * @example
   * const { stdout, exit_code } = await client.sessions.exec(id, { command: ["uname", "-r"] });
   */
  exec(sessionId: string, request: ExecRequest, options: CallOptions = {}): Promise<ExecResult> {
    return execBuffered(this.#transport, sessionId, request, options);
  }

  /**
   * Runs a command and yields its output as it is produced, of any size; the last event is `exit`. Leaving the loop
   * kills the command.
   *
   * @example
   * for await (const event of client.sessions.execStream(id, { command: ["ls", "-l"] })) {
   *   if (event.type === "exit") console.log("exit code", event.data.exit_code);
   *   else process[event.type].write(event.data);
   * }
   */
  execStream(
    sessionId: string,
    request: ExecRequest,
    options: CallOptions = {},
  ): AsyncGenerator<ExecEvent, void, void> {
    return execStream(this.#transport, sessionId, request, options);
  }

  /**
   * Resolves to the session's record when it is no longer `creating`. Rejects with `session_failed` when it could not
   * start, and with `wait_timeout` after `timeoutMs` (default: 5 minutes).
   *
   * @example
   * const session = await client.sessions.create();
   * await client.sessions.waitUntilLive(session.session_id);
   */
  async waitUntilLive(
    sessionId: string,
    options: TimedOptions & { timeoutMs?: number } = {},
  ): Promise<SessionRecord> {
    const deadline = Date.now() + (options.timeoutMs ?? WAIT_TIMEOUT_MS);
    for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(pollMs * 1.5, SLOWEST_POLL_MS)) {
      const record = await this.get(sessionId, { timing: options.timing, signal: options.signal });
      if (record.state === "failed") {
        const reason = record.status_reason ?? "no reason given";
        throw new VivariumError("session_failed", `session ${sessionId} could not start: ${reason}`);
      }
      if (record.state !== "creating") return record;
      if (Date.now() >= deadline) {
        const detail = record.status_detail ?? "creating";
        throw new VivariumError("wait_timeout", `session ${sessionId} is still not live (${detail})`);
      }
      await this.#transport.sleep(pollMs, options.signal);
      options.signal?.throwIfAborted();
    }
  }

  #change<T>(
    sessionId: string,
    verb: "pause" | "resume" | "archive/retry" | "fork" | "restore",
    body: object,
    repeatable: boolean,
    options: TimedOptions,
  ): Promise<T> {
    return postJson(this.#transport, sessionPath(sessionId, `/${verb}`), body, { ...options, repeatable });
  }
}
