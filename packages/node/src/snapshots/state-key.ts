/**
 * The state key of a session: it seals the saved memory, the device state and the disk of machines that may hold secrets.
 * Control sends it with the calls that need it. The node keeps its id alone (docs/design/sealed-state.md).
 */
import { createHash, hkdfSync } from "node:crypto";
import { StateKeyText } from "@vivarium/contract/node";
import { NodeError } from "../node-error.ts";

const DERIVED_BYTES = 32;
const ID_BYTES = 8;

/** Logs and JSON show the id alone. */
export class StateKey {
  readonly id: string;
  readonly #bytes: Buffer;

  /** Throws a refusal that does not repeat the text. */
  static parse(text: unknown): StateKey {
    const parsed = StateKeyText.safeParse(text);
    if (parsed.success) return new StateKey(Buffer.from(parsed.data, "base64url"));
    throw new NodeError("invalid", "the state key does not fit the contract");
  }

  private constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.id = createHash("sha256").update(bytes).digest().subarray(0, ID_BYTES).toString("hex");
  }

  derive(purpose: "memory" | "device state" | "disk"): Buffer {
    return Buffer.from(hkdfSync("sha256", this.#bytes, "", `vivarium sealed ${purpose}`, DERIVED_BYTES));
  }

  /** QEMU takes text alone for a passphrase. */
  get diskPassphrase(): string {
    return this.derive("disk").toString("hex");
  }
}

/** Refuses a call without the key that `id` names; `what` was sealed with it. */
export function requireStateKey(id: string, key: StateKey | undefined, what: string): StateKey {
  if (key?.id === id) return key;
  const why = key === undefined ? "came without its state key" : "came with another state key";
  throw new NodeError("wrong_state_key", `${what} is sealed, and the call ${why}`);
}
