import type { NodeErrorCode } from "@vivarium/contract/node";

/**
 * Why a call to a node failed:
 * - `refused`: the node said so, with a code of contract/node; nothing was done
 * - `unreachable`: no connection; nothing was done
 * - `garbled`: the answer does not fit the contract, and it says that nothing was started
 * - `broken`: the connection or the answer broke off; how far the node got is unknown
 * - `aborted`: the caller's own signal
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
