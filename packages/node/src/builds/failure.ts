/** The failure that a build's user is shown for an error: a word of the contract and one line, without anything of this host. */
import type { BuildFailure, BuildFailureWord } from "@vivarium/contract/node";
import { RegistryError, type RegistryErrorCode } from "@vivarium/oci/registry-error";
import { NodeError } from "../node-error.ts";
import { BuildError } from "./build-error.ts";
import { oneLine } from "./build-log.ts";

const WORDS: Record<RegistryErrorCode, BuildFailureWord> = {
  bad_reference: "image_invalid",
  authentication_failed: "registry_auth",
  realm_refused: "registry_auth",
  not_found: "image_not_found",
  too_large: "image_too_large",
  bad_digest: "image_invalid",
  unsupported_media_type: "image_invalid",
  no_platform: "image_invalid",
  invalid_image: "image_invalid",
  redirect_refused: "image_invalid",
  address_refused: "image_invalid",
  unreachable: "internal",
  registry_failed: "internal",
  timed_out: "build_timeout",
  rate_limited: "rate_limited",
};

/** Why builds end whose daemon ends. */
export class Interruption extends Error {
  override readonly message = "the node's daemon restarted";
}

export function failureOf(error: unknown): BuildFailure {
  if (error instanceof Interruption)
    return { word: "interrupted", message: error.message, is_transient: true };
  if (error instanceof RegistryError) {
    const word = WORDS[error.code];
    return {
      word,
      message: oneLine(error.message),
      is_transient: error.isTransient || word === "rate_limited",
      ...(error.retryAfterMs !== undefined && { retry_after_ms: Math.ceil(error.retryAfterMs) }),
    };
  }
  if (error instanceof BuildError && error.code !== "internal")
    return { word: error.code, message: oneLine(error.message), is_transient: false };
  if (error instanceof NodeError)
    return { word: "internal", message: oneLine(error.message), is_transient: true };
  return { word: "internal", message: "unexpected failure on the node", is_transient: true };
}

/** Whether an operator has to see the error itself: nobody else learns it. */
export const isOwnFault = (error: unknown): boolean => failureOf(error).word === "internal";
