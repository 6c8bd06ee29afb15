import type {
  Checkpoint,
  CheckpointCreate,
  CheckpointList,
  CheckpointStart,
  SessionRecord,
} from "@vivarium/contract/api";
import { paginate } from "./paginator.ts";
import { type CallOptions, send, sendJson, type TimedOptions, type Transport } from "./transport.ts";

/** Checkpoints: saved instants of sessions that stay until they are deleted. Reached as `client.checkpoints`. */
export class Checkpoints {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Saves a session as it is at this instant: memory, processes and disk. A live session runs on, a paused one stays
   * paused. The checkpoint is durable when the promise resolves, and outlives its session.
   *
   * @example
   * const { checkpoint_id } = await client.checkpoints.create(sessionId, { name: "before-upgrade" });
   */
  create(sessionId: string, request: CheckpointCreate = {}, options: TimedOptions = {}): Promise<Checkpoint> {
    const { timing, signal } = options;
    return sendJson(this.#transport, {
      method: "POST",
      path: `/v1/sessions/${encodeURIComponent(sessionId)}/checkpoints`,
      query: { timing },
      body: request,
      repeatable: false,
      signal,
    });
  }

  /**
   * The checkpoints of one session that has not ended, newest first.
   *
   * @example
   * const { checkpoints } = await client.checkpoints.list(sessionId);
   */
  list(sessionId: string, options: CallOptions = {}): Promise<CheckpointList> {
    return sendJson(this.#transport, {
      method: "GET",
      path: `/v1/sessions/${encodeURIComponent(sessionId)}/checkpoints`,
      repeatable: true,
      ...options,
    });
  }

  /**
   * Every checkpoint, also of sessions that have ended, newest first, fetched page by page.
   *
   * @example
   * for await (const checkpoint of client.checkpoints.all()) console.log(checkpoint.checkpoint_id);
   */
  all(
    filter: { sessionId?: string; pageSize?: number } = {},
    options: CallOptions = {},
  ): AsyncGenerator<Checkpoint, void, void> {
    return paginate(async (cursor) => {
      const page = await sendJson<CheckpointList>(this.#transport, {
        method: "GET",
        path: "/v1/checkpoints",
        query: { session_id: filter.sessionId, limit: filter.pageSize, cursor },
        repeatable: true,
        ...options,
      });
      return { items: page.checkpoints, nextCursor: page.next_cursor };
    });
  }

  /**
   * One checkpoint's record.
   *
   * @example
   * const { size_bytes } = await client.checkpoints.get(checkpointId);
   */
  get(checkpointId: string, options: CallOptions = {}): Promise<Checkpoint> {
    return sendJson(this.#transport, {
      method: "GET",
      path: checkpointPath(checkpointId),
      repeatable: true,
      ...options,
    });
  }

  /**
   * Deletes a checkpoint. Sessions that were started from it, or restored to it, are not affected.
   *
   * @example
   * await client.checkpoints.delete(checkpointId);
   */
  async delete(checkpointId: string, options: CallOptions = {}): Promise<void> {
    await send(this.#transport, {
      method: "DELETE",
      path: checkpointPath(checkpointId),
      repeatable: true,
      isDoneWhenGone: true,
      ...options,
    });
  }

  /**
   * Starts a new session from a checkpoint. It is live when the promise resolves. A request whose answer was lost is
   * not sent again: the session may exist.
   *
   * @example
   * const { session_id } = await client.checkpoints.start(checkpointId, { name: "second-try" });
   */
  start(
    checkpointId: string,
    request: CheckpointStart = {},
    options: TimedOptions = {},
  ): Promise<SessionRecord> {
    const { timing, signal } = options;
    return sendJson(this.#transport, {
      method: "POST",
      path: `${checkpointPath(checkpointId)}/sessions`,
      query: { timing },
      body: request,
      repeatable: false,
      signal,
    });
  }
}

function checkpointPath(checkpointId: string): string {
  return `/v1/checkpoints/${encodeURIComponent(checkpointId)}`;
}
