/** State keys of the fake node: it seals nothing, but asks for the same keys as a node that does. */
import type { IncomingHttpHeaders } from "node:http";
import { STATE_KEY_HEADER, StateKeyText } from "@vivarium/contract/node";
import { Refusal } from "./refusal.ts";

export function stateKeyOf(headers: IncomingHttpHeaders): string | undefined {
  const text = headers[STATE_KEY_HEADER];
  if (text === undefined) return undefined;
  const parsed = StateKeyText.safeParse(text);
  if (parsed.success) return parsed.data;
  throw new Refusal("invalid", "the state key does not fit the contract");
}

/** Refuses a call without the key with which `what` is sealed, if it is. */
export function requireStateKey(sealedWith: string | undefined, key: string | undefined, what: string): void {
  if (sealedWith === undefined || sealedWith === key) return;
  throw new Refusal("wrong_state_key", `${what} is sealed with another state key`);
}
