/** Error codes of contract/node: the node's own, and those of an agent. Body of a refusal: `{code, message}`. */
import { GUEST_ERRORS } from "../guest/errors.ts";
import { OWN_ERRORS } from "./errors.ts";

export const NODE_ERRORS = { ...OWN_ERRORS, ...GUEST_ERRORS };
export type NodeErrorCode = keyof typeof NODE_ERRORS;

export function isNodeErrorCode(code: string): code is NodeErrorCode {
  return Object.hasOwn(NODE_ERRORS, code);
}
