import { type ErrorBody, errorRow, LIMITS } from "@vivarium/contract/api";
import { TOO_SLOW } from "@vivarium/http1/body-rate";
import type { FastifyReply, FastifyRequest } from "fastify";
import { isStoreUnavailable } from "../db/postgres-errors.ts";
import { ApiError } from "../errors/api-error.ts";
import { UnreadableBody } from "./body.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** The error that the request was answered with. */
    refusal: ApiError | null;
  }
}

const INTERNAL_MESSAGE =
  "internal error: the request failed unexpectedly; the server log has it under its X-Request-Id";
const CUT_SHORT = "request body: the connection was closed before its end";
const WRONG_LENGTH = "request body: its size does not match the Content-Length header";
const BAD_URL = "no such path: the URL is not validly percent-encoded";
const STORE_MESSAGE = "the catalog database is not reachable at the moment; try again";

/** Writes every error answer of the service: `{error, code}`, the status of the code's row, Retry-After. */
export function renderError(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const wasCutShort = isCutShort(error, request);
  const apiError = wasCutShort
    ? new ApiError("validation", CUT_SHORT)
    : (bodyTooLarge(error, request) ?? toApiError(error));
  if (wasCutShort) request.log.info(CUT_SHORT);
  else if (wasGivenUp(apiError.cause, request)) request.log.info("the client left before its answer");
  else if (errorRow(apiError.code).status >= 500) {
    request.log.error({ err: apiError.cause ?? error, error_code: apiError.code }, apiError.message);
  }
  request.refusal = apiError;
  // Set by the framework, which takes it that more of the body may follow.
  if (error instanceof UnreadableBody) void reply.removeHeader("connection");
  const rendered = renderedError(apiError);
  if (rendered.retryAfterS !== undefined) void reply.header("retry-after", String(rendered.retryAfterS));
  void reply.status(rendered.status).header("content-type", "application/json; charset=utf-8");
  void reply.send(JSON.stringify(rendered.body));
}

/** The error for a body over the route's own limit; undefined for other errors. */
function bodyTooLarge(cause: unknown, { routeOptions }: FastifyRequest): ApiError | undefined {
  if (codeOf(cause) !== "FST_ERR_CTP_BODY_TOO_LARGE") return undefined;
  const limit = routeOptions.bodyLimit ?? LIMITS.jsonBodyBytes;
  return new ApiError("payload_too_large", `request body: must be at most ${limit} bytes of JSON`, { cause });
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/** Whether the client left while it sent the body. No one reads the answer, and nothing failed here. */
function isCutShort(error: unknown, { raw }: FastifyRequest): boolean {
  return codeOf(error) === "ECONNRESET" && raw.complete === false;
}

/** Whether the operation was aborted because its client left, which is not a failure of the service. */
function wasGivenUp(cause: unknown, { raw }: FastifyRequest): boolean {
  return raw.socket.destroyed && cause instanceof Error && "failure" in cause && cause.failure === "aborted";
}

/** The parts of an error answer, for use without a reply. */
export function renderedError(error: ApiError): { status: number; retryAfterS?: number; body: ErrorBody } {
  const row = errorRow(error.code);
  const retryAfterS = error.retryAfterS === undefined ? row.retryAfterS : (error.retryAfterS ?? undefined);
  return { status: row.status, retryAfterS, body: { error: oneLine(error.message), code: error.code } };
}

/** Message and code of any failure, as an item of a batch or an event of a stream shows it. */
export function errorBody(error: unknown): ErrorBody {
  return renderedError(toApiError(error)).body;
}

function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (isStoreUnavailable(error)) return new ApiError("unavailable", STORE_MESSAGE, { cause: error });
  const code = codeOf(error);
  if (code === TOO_SLOW) return new ApiError("validation", (error as Error).message);
  if (code === "FST_ERR_CTP_INVALID_CONTENT_LENGTH")
    return new ApiError("validation", WRONG_LENGTH, { cause: error });
  if (code === "FST_ERR_BAD_URL") return new ApiError("not_found", BAD_URL, { cause: error });
  return new ApiError("internal", INTERNAL_MESSAGE, { cause: error });
}

/** One line of at most `maxChars` characters, without control characters. */
export function oneLine(text: string, maxChars: number = LIMITS.errorMessageChars): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what this removes
  const line = text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ").toWellFormed();
  return line.length > maxChars ? `${line.slice(0, maxChars - 1).toWellFormed()}…` : line;
}
