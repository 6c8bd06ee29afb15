/** Sends requests to the service and retries them where that is safe. */
import { errorFromNetwork, errorFromResponse, VivariumError } from "./errors.ts";
import { retryDelayMs, wasAnswerLost } from "./retry.ts";

/** The part of `fetch` that this package uses. The global `fetch` has this type. */
export type Fetch = (
  url: string,
  init: {
    method: string;
    headers: Record<string, string>;
    body?: string | Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>;
    /** Required by `fetch` for a streamed body. */
    duplex?: "half";
    signal?: AbortSignal;
  },
) => Promise<Response>;

/** The settings that all calls of one client share. */
export interface Transport {
  readonly url: string;
  readonly apiKey: string | undefined;
  readonly fetch: Fetch;
  /** Retries of one request at most. */
  readonly retries: number;
  readonly sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
}

/** Options that every call takes. */
export interface CallOptions {
  /** Ends the call early; its promise rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** Options of calls that start, stop or save a machine. */
export interface TimedOptions extends CallOptions {
  /** Asks for `timing` in the answer: milliseconds per stage. */
  timing?: boolean;
}

/** A request body that is sent as bytes, not as JSON. */
export interface RawBody {
  /** Returns the body for one attempt. */
  open(): Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>;
  /** Whether `open` returns the whole body: nothing was read yet, or the source can be read again. */
  readonly canBeSent: boolean;
}

/** Ids or names that would change the path: URL parsers resolve them even when they are percent-encoded. */
const DOT_SEGMENTS = [".", ".."];

type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

export interface Call extends CallOptions {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: Query;
  /** Sent as JSON. */
  body?: unknown;
  raw?: RawBody;
  headers?: Record<string, string>;
  /** Whether sending the request twice has the same effect as sending it once. */
  repeatable: boolean;
  /** For deletes: `not_found` after an attempt whose answer was lost counts as success. */
  isDoneWhenGone?: boolean;
}

/** The path of a session's record, or of `below` under it. */
export function sessionPath(sessionId: string, below = ""): string {
  return `/v1/sessions/${encodeURIComponent(sessionId)}${below}`;
}

export function getJson<T>(
  transport: Transport,
  path: string,
  { timing, signal }: TimedOptions,
  query: Query = {},
): Promise<T> {
  return sendJson(transport, { method: "GET", path, query: { ...query, timing }, repeatable: true, signal });
}

export function postJson<T>(
  transport: Transport,
  path: string,
  body: unknown,
  { timing, headers, repeatable, signal }: TimedOptions & Pick<Call, "repeatable" | "headers">,
): Promise<T> {
  return sendJson(transport, { method: "POST", path, query: { timing }, body, headers, repeatable, signal });
}

/** Is repeated when its answer was lost. `not_found` then counts as success. */
export async function sendDelete(
  transport: Transport,
  path: string,
  { signal }: CallOptions,
  query: Query = {},
): Promise<void> {
  await send(transport, { method: "DELETE", path, query, repeatable: true, isDoneWhenGone: true, signal });
}

/** Sends a request, with retries where they are safe. Resolves to the 2xx answer; rejects for any other. */
export function send(transport: Transport, call: Call): Promise<Response> {
  return sendAndTake(transport, call, async (response) => response);
}

/** Sends a request as `send` does, and resolves to its JSON body. */
export function sendJson<T>(transport: Transport, call: Call): Promise<T> {
  return sendAndTake(transport, call, (response) => readJson<T>(transport, call, response));
}

/** `take` reads the body within an attempt, so an answer that breaks off is retried like a missing answer. */
async function sendAndTake<T>(
  transport: Transport,
  call: Call,
  take: (response: Response) => Promise<T | VivariumError>,
): Promise<T> {
  let isAnswerLost = false;
  for (let attempt = 0; ; attempt++) {
    const answer = await sendOnce(transport, call);
    // The attempt whose answer was lost has probably deleted it.
    const isGone = answer instanceof VivariumError && answer.code === "not_found";
    const response =
      isGone && isAnswerLost && call.isDoneWhenGone ? new Response(null, { status: 204 }) : answer;
    const outcome = response instanceof VivariumError ? response : await take(response);
    if (!(outcome instanceof VivariumError)) return outcome;
    // The abort may have cut the body of an error short.
    call.signal?.throwIfAborted();
    isAnswerLost ||= wasAnswerLost(outcome);
    const delayMs = attempt < transport.retries ? retryDelayMs(outcome, call, attempt) : undefined;
    if (delayMs === undefined || call.raw?.canBeSent === false) throw outcome;
    await transport.sleep(delayMs, call.signal);
    call.signal?.throwIfAborted();
  }
}

async function readJson<T>(transport: Transport, call: Call, response: Response): Promise<T | VivariumError> {
  try {
    return (await response.json()) as T;
  } catch (cause) {
    call.signal?.throwIfAborted();
    if (!(cause instanceof SyntaxError)) return errorFromNetwork(cause, transport.url);
    throw new VivariumError("error", `${transport.url} answered with something that is not JSON`, {
      status: response.status,
      cause,
    });
  }
}

async function sendOnce(transport: Transport, call: Call): Promise<Response | VivariumError> {
  // Outside the `try`: an error about the request itself is not a network failure, and is not retried.
  const url = buildUrl(transport.url, call);
  const { method, signal } = call;
  const init = { method, headers: buildHeaders(transport, call), ...buildBody(call), signal };
  let response: Response;
  try {
    response = await transport.fetch(url, init);
  } catch (cause) {
    call.signal?.throwIfAborted();
    return errorFromNetwork(cause, transport.url);
  }
  return response.ok ? response : await errorFromResponse(response);
}

function buildBody({ body, raw }: Call): { body?: Parameters<Fetch>[1]["body"]; duplex?: "half" } {
  if (raw === undefined) return { body: body === undefined ? undefined : JSON.stringify(body) };
  const opened = raw.open();
  return opened instanceof ReadableStream ? { body: opened, duplex: "half" } : { body: opened };
}

export function buildUrl(base: string, call: Pick<Call, "path" | "query">): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(call.query ?? {})) {
    if (Array.isArray(value)) for (const each of value) query.append(name, each);
    else if (value !== undefined) query.set(name, String(value));
  }
  const suffix = query.size > 0 ? `?${query}` : "";
  const dots = call.path.split("/").find((segment) => DOT_SEGMENTS.includes(segment));
  if (dots !== undefined) {
    const message = `"${dots}" is no id and no name; expected those of a session, a process or what else is asked for`;
    throw new VivariumError("validation", message, { status: 400 });
  }
  return `${base}${call.path}${suffix}`;
}

function buildHeaders(transport: Transport, call: Call): Record<string, string> {
  return {
    accept: "application/json",
    ...(transport.apiKey === undefined ? {} : { authorization: `Bearer ${transport.apiKey}` }),
    ...(call.body === undefined ? {} : { "content-type": "application/json" }),
    ...(call.raw === undefined ? {} : { "content-type": "application/octet-stream" }),
    ...call.headers,
  };
}
