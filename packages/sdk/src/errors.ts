/** The errors of this package, made from the service's answers and from network failures. */
import { ERROR_ALIASES, ERRORS, type ErrorCode, isErrorCode } from "@vivarium/contract/api/errors";

/** Codes of failures that this client reports itself; the service's error answers have other codes. */
export type ClientErrorCode =
  /** Nothing listens at the URL. */
  | "connection_refused"
  /** The connection could not be made, or broke before the answer. Whether the request had an effect is unknown. */
  | "connection_failed"
  /** A stream ended without its closing event; the message says what is known about the outcome. */
  | "stream_interrupted"
  /** The guest could not run the command to its end (the `error` event of a stream). */
  | "exec_failed"
  /** A log could not be followed to its end (the `error` event of a follow); the process keeps running. */
  | "log_failed"
  /** The service ended a terminal or a tunnel: the session was paused or destroyed, or the guest failed. */
  | "disconnected"
  /** The Python process of a code context ended; its variables are lost. The next run gets a new one. */
  | "kernel_died"
  /** The Python process of a code context could not be started, or violates its protocol. */
  | "kernel_failed"
  /** A preview needs a bearer token that this program was not given. */
  | "bearer_unknown"
  /** A session became `failed` while this client waited for it. */
  | "session_failed"
  /** The capture of an artifact has failed. */
  | "artifact_failed"
  /** A wait for a session or a process reached its time limit. */
  | "wait_timeout";

/**
 * The one error this package throws for anything the service or the network refuses. Branch on `code`, never on the
 * message: texts may be reworded, codes are stable.
 *
 * @example
 * try {
 *   await client.sessions.get("aaaaaaaaaaaaaaaaaaaaa");
 * } catch (error) {
 *   if (error instanceof VivariumError && error.code === "not_found") console.log("gone");
 *   else throw error;
 * }
 */
export class VivariumError extends Error {
  override readonly name = "VivariumError";
  /** A code of the API, a `ClientErrorCode`, or a code of a newer service. */
  readonly code: ErrorCode | ClientErrorCode | (string & {});
  /** HTTP status of the answer; 0 without one. Some errors that this client raises itself have 400. */
  readonly status: number;
  /** Whether the same request may succeed later without any change. */
  readonly retryable: boolean;
  /** Seconds the service asked to wait, when it did. */
  readonly retryAfterS: number | undefined;
  /** Id of the request in the server's log. */
  readonly requestId: string | undefined;

  constructor(
    code: VivariumError["code"],
    message: string,
    facts: Partial<Pick<VivariumError, "status" | "retryable" | "retryAfterS" | "requestId" | "cause">> = {},
  ) {
    super(message, { cause: facts.cause });
    this.code = code;
    this.status = facts.status ?? 0;
    this.retryable = facts.retryable ?? false;
    this.retryAfterS = facts.retryAfterS;
    this.requestId = facts.requestId;
  }
}

/** The error for a non-2xx answer. An answer that is not the service's (a proxy's page, say) gets the code `error`. */
export async function errorFromResponse(
  response: Pick<Response, "status" | "headers" | "text">,
): Promise<VivariumError> {
  const { code, message } = readEnvelope(await response.text().catch(() => ""), response.status);
  const retryAfterS = parseRetryAfter(response.headers.get("retry-after"));
  const retryable = isRetryable(code, retryAfterS);
  const requestId = response.headers.get("x-request-id") ?? undefined;
  return new VivariumError(code, message, { status: response.status, retryable, retryAfterS, requestId });
}

/** The error for a request that got no answer, or only a part. */
export function errorFromNetwork(cause: unknown, url: string): VivariumError {
  const reasons = systemCodes(cause);
  if (reasons.includes("ECONNREFUSED")) {
    return new VivariumError("connection_refused", `nothing listens at ${url}`, { cause });
  }
  const reason = reasons[0] ?? (cause instanceof Error ? cause.message : String(cause));
  return new VivariumError("connection_failed", `no answer from ${url}: ${reason}`, { cause });
}

/**
 * The service sends Retry-After only where a retry makes sense: a code that is usually retryable comes without it when
 * waiting cannot help. With a known code that is never retryable, a proxy's Retry-After is ignored.
 */
function isRetryable(code: string, retryAfterS: number | undefined): boolean {
  if (retryAfterS === undefined) return false;
  return isErrorCode(code) && code !== "error" ? ERRORS[code].retryable : true;
}

function readEnvelope(text: string, status: number): { code: string; message: string } {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body === "object" && body !== null && "code" in body && "error" in body) {
      const code = String(body.code);
      return { code: ERROR_ALIASES[code] ?? code, message: String(body.error) };
    }
  } catch {
    // Not JSON: a proxy between this client and the service has answered.
  }
  return { code: "error", message: `HTTP ${status} without an error message: not an answer of the service` };
}

function parseRetryAfter(header: string | null): number | undefined {
  if (header === null) return undefined;
  const seconds = Number(header);
  return Number.isFinite(seconds) && seconds >= 0 ? seconds : undefined;
}

/** Codes such as ECONNREFUSED: Node nests system errors as causes, and in an AggregateError one per address tried. */
function systemCodes(error: unknown): string[] {
  if (typeof error !== "object" || error === null) return [];
  const own = "code" in error && typeof error.code === "string" ? [error.code] : [];
  const nested = "errors" in error && Array.isArray(error.errors) ? error.errors.flatMap(systemCodes) : [];
  return [...own, ...nested, ...("cause" in error ? systemCodes(error.cause) : [])];
}
