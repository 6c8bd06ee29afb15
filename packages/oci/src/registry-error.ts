/** The one error with which a pull is refused or fails, and the closed list of its codes. */

export type RegistryErrorCode =
  /** The text is not the reference of an image. */
  | "bad_reference"
  /** The registry wants a credential, or refuses the given one. */
  | "authentication_failed"
  /** The registry knows no such image, or lacks a part of it. */
  | "not_found"
  /** A limit of sizes or counts is exceeded. */
  | "too_large"
  /** Bytes do not match their digest or their size. */
  | "bad_digest"
  | "unsupported_media_type"
  /** The image exists, but not for the wanted platform. */
  | "no_platform"
  /** A document is not what its type says, or can be read in two ways. */
  | "invalid_image"
  /** The registry names a token service to which no request is sent. */
  | "realm_refused"
  /** The registry redirects to an address to which no request is sent. */
  | "redirect_refused"
  /** A host has an address that may not be connected. */
  | "address_refused"
  /** No connection, or none with a valid certificate. */
  | "unreachable"
  | "timed_out"
  /** 429. `retryAfterMs` is what the registry asked for. */
  | "rate_limited"
  /** The registry failed, or does not follow the protocol. */
  | "registry_failed";

interface Details {
  retryAfterMs?: number;
  isTransient?: boolean;
  cause?: unknown;
}

/** A refusal or failure. The message is safe to show: no credential, token or signed address is part of it. */
export class RegistryError extends Error {
  readonly code: RegistryErrorCode;
  readonly retryAfterMs: number | undefined;
  /** Whether the same request may succeed later. */
  readonly isTransient: boolean;

  constructor(
    code: RegistryErrorCode,
    message: string,
    { retryAfterMs, isTransient = false, cause }: Details = {},
  ) {
    super(message, { cause });
    this.code = code;
    this.retryAfterMs = retryAfterMs;
    this.isTransient = isTransient;
  }
}
