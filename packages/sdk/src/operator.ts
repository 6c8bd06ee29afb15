/** `client.operator`: the whole installation, for a client with the operator's key. */
import type { KekStatus } from "@vivarium/contract/api";
import { type CallOptions, getJson, postJson, type Transport } from "./transport.ts";

const ROTATE = "/v1/admin/keys/rotate";

/**
 * Calls for who runs the service. They need the operator's key (`viv_op_…`, in `control/operator.key` of the data
 * directory), and reject with `forbidden` for every other credential. Reached as `client.operator`.
 */
export class Operator {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * The key-encryption keys that are loaded, and how much each still seals.
   *
   * @example
   * const { current, keys } = await client.operator.kekStatus();
   */
  kekStatus(options: CallOptions = {}): Promise<KekStatus> {
    return getJson(this.#transport, ROTATE, options);
  }

  /**
   * Seals with a new key from now on; what is sealed is brought under it in the background. Rejects with `conflict` if
   * the keys are the operator's own and no new one was added.
   *
   * @example
   * const { current } = await client.operator.rotateKek();
   */
  rotateKek(options: CallOptions = {}): Promise<KekStatus> {
    return postJson(this.#transport, ROTATE, undefined, { ...options, repeatable: false });
  }
}
