import type { NodeErrorCode } from "@vivarium/contract/node";
import { ApiError } from "../errors/api-error.ts";

/**
 * Why a call to a node failed:
 * - `refused`: the node answered with an error code of contract/node; nothing was done
 * - `unreachable`: no connection; nothing was done
 * - `garbled`: the answer does not fit the contract; for an exec this means that nothing was started
 * - `broken`: the connection or the answer broke off; how far the node got is unknown
 * - `aborted`: the caller's own signal; how far the node got is unknown
 */
export type NodeFailure = "refused" | "unreachable" | "garbled" | "broken" | "aborted";

export class NodeError extends Error {
  readonly failure: NodeFailure;
  readonly code: NodeErrorCode | undefined;

  constructor(
    failure: NodeFailure,
    message: string,
    options: { code?: NodeErrorCode; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "NodeError";
    this.failure = failure;
    this.code = options.code;
  }
}

const STARTED_NOTHING: ReadonlySet<NodeFailure> = new Set(["refused", "unreachable", "garbled"]);

/** Whether an exec has certainly started no command. An ApiError without a NodeError precedes the node call. */
export function hasStartedNothing(error: unknown): boolean {
  const cause = error instanceof ApiError ? error.cause : error;
  return cause instanceof NodeError ? STARTED_NOTHING.has(cause.failure) : error instanceof ApiError;
}

/** Whether the node answered, with an error or unreadably: then the call has no later effect there. */
export function isRefusal(error: unknown): error is NodeError {
  return error instanceof NodeError && (error.failure === "refused" || error.failure === "garbled");
}
