/** `client.checkpoints`, the calls about checkpoints. */
import type {
  Checkpoint,
  CheckpointCreate,
  CheckpointList,
  CheckpointStart,
  SessionRecord,
} from "@vivarium/contract/api";
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

/** Saved states of sessions, which are kept until they are deleted. Reached as `client.checkpoints`. */
export class Checkpoints {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Saves a session as it is at this instant: memory, processes and disk. A live session keeps running, a paused one
   * stays paused. The checkpoint is durable when the promise resolves, and outlives its session.
   *
   * @example
   * const { checkpoint_id } = await client.checkpoints.create(sessionId, { name: "before-upgrade" });
   */
  create(sessionId: string, request: CheckpointCreate = {}, options: TimedOptions = {}): Promise<Checkpoint> {
    const path = sessionPath(sessionId, "/checkpoints");
    return postJson(this.#transport, path, request, { ...options, repeatable: false });
  }

  /**
   * The checkpoints of one session that has not ended, newest first.
   *
   * @example
   * const { checkpoints } = await client.checkpoints.list(sessionId);
   */
  list(sessionId: string, options: CallOptions = {}): Promise<CheckpointList> {
    return getJson(this.#transport, sessionPath(sessionId, "/checkpoints"), options);
  }

  /**
   * All checkpoints, including those of ended sessions, newest first, fetched page by page.
   *
   * @example
   * for await (const checkpoint of client.checkpoints.all()) console.log(checkpoint.checkpoint_id);
   */
  all(
    filter: { sessionId?: string; pageSize?: number } = {},
    options: CallOptions = {},
  ): AsyncGenerator<Checkpoint, void, void> {
    const { sessionId: session_id, pageSize: limit } = filter;
    return paginate("checkpoints", (cursor) =>
      getJson<CheckpointList>(this.#transport, "/v1/checkpoints", options, { session_id, limit, cursor }),
    );
  }

  /**
   * One checkpoint's record.
   *
   * @example
   * const { size_bytes } = await client.checkpoints.get(checkpointId);
   */
  get(checkpointId: string, options: CallOptions = {}): Promise<Checkpoint> {
    return getJson(this.#transport, checkpointPath(checkpointId), options);
  }

  /**
   * Deletes a checkpoint. Sessions that were started from it, or restored to it, are not affected.
   *
   * @example
   * await client.checkpoints.delete(checkpointId);
   */
  async delete(checkpointId: string, options: CallOptions = {}): Promise<void> {
    await sendDelete(this.#transport, checkpointPath(checkpointId), options);
  }

  /**
   * Starts a new session from a checkpoint. It is live when the promise resolves. A request whose answer was lost is
   * not repeated, since the session may exist.
   *
   * @example
   * const { session_id } = await client.checkpoints.start(checkpointId, { name: "second-try" });
   */
  start(
    checkpointId: string,
    request: CheckpointStart = {},
    options: TimedOptions = {},
  ): Promise<SessionRecord> {
    const path = `${checkpointPath(checkpointId)}/sessions`;
    return postJson(this.#transport, path, request, { ...options, repeatable: false });
  }
}

function checkpointPath(checkpointId: string): string {
  return `/v1/checkpoints/${encodeURIComponent(checkpointId)}`;
}
