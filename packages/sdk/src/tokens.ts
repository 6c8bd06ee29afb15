/** `session.tokens`, credentials for one session. */
import type { TokenCreate, TokenCreated, TokenRecord } from "@vivarium/contract/api";
import { type CallOptions, getJson, postJson, sendDelete, sessionPath, type Transport } from "./transport.ts";

/**
 * Scoped tokens of one session, as `client.session(id).tokens`: each reaches this session alone, with a part of what a key
 * may do there. Needs a key of the whole organisation. Never wakes the session.
 */
export class Tokens {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#path = sessionPath(sessionId, "/tokens");
  }

  /**
   * Mints a token. `token` of the answer is shown this once. Without `capabilities` it has all of them: `pty`, `exec`,
   * `files`, `tunnel` and `view`. Rejects with `validation` when it would outlive the session.
   *
   * @example
   * const { token } = await session.tokens.mint({ ttl_seconds: 3600, capabilities: ["pty", "view"] });
   */
  mint(request: TokenCreate, options: CallOptions = {}): Promise<TokenCreated> {
    // Never sent twice: a token whose answer was lost would be valid, and nobody would know it.
    return postJson(this.#transport, this.#path, request, { ...options, repeatable: false });
  }

  /** The tokens that have not ended, newest first, without the tokens themselves. */
  list(options: CallOptions = {}): Promise<TokenRecord[]> {
    return getJson(this.#transport, this.#path, options);
  }

  /** Revokes a token by its `hash`: it is refused from the answer on, and what it has open ends within seconds. */
  async revoke(hash: string, options: CallOptions = {}): Promise<void> {
    await sendDelete(this.#transport, `${this.#path}/${encodeURIComponent(hash)}`, options);
  }
}
