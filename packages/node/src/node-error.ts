import type { NodeErrorCode } from "@vivarium/contract/node";

/** A refusal of contract/node. The message is safe to show to a user. */
export class NodeError extends Error {
  readonly code: NodeErrorCode;
  constructor(code: NodeErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}
