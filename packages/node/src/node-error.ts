/** Errors with which a call of contract/node is refused. */
import type { NodeErrorCode } from "@vivarium/contract/node";

/** A refusal of a call of contract/node. The message is safe to show to a user. */
export class NodeError extends Error {
  readonly code: NodeErrorCode;
  constructor(code: NodeErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** The agent did not answer in time. The cause may be the guest or a busy host. */
export class AgentSilence extends NodeError {
  constructor(message: string, options?: { cause?: unknown }) {
    super("agent_unavailable", message, options);
  }
}
