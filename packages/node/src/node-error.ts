import type { NodeErrorCode } from "@vivarium/contract/node";

/** A refusal of contract/node. The message is safe to show to a user. */
export class NodeError extends Error {
  readonly code: NodeErrorCode;
  constructor(code: NodeErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** An agent was not heard in time, which looks the same whether the guest or the host keeps it from answering. */
export class AgentSilence extends NodeError {
  constructor(message: string, options?: { cause?: unknown }) {
    super("agent_unavailable", message, options);
  }
}
