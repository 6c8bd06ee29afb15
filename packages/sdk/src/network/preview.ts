/** `Preview`, a `fetch` for a session's exposed port. */
import type { Exposed } from "@vivarium/contract/api";
import { errorFromNetwork } from "../errors.ts";
import { isRedirect, nextHop } from "./redirect.ts";

const MAX_REDIRECTS = 20;

/** An exposed port of a session, with its tokens. Made by `session.preview(port)`. */
export class Preview {
  /** The port as the service has exposed it. Its `preview_url` opens the preview in a browser. */
  readonly exposed: Exposed;
  /** URL of the preview, without its token. */
  readonly url: string;
  /** The headers that a request needs (token, bearer token, both or none), for clients other than `fetch`. */
  readonly headers: Readonly<Record<string, string>>;
  /**
   * A `fetch` that sends the preview's headers (in Node). Takes paths and absolute URLs of the preview. Another origin
   * is a TypeError, since it would receive the token. Redirects are followed inside the preview; a redirect to another
   * origin is returned as the response. A paused session wakes while the request waits. Network failures are
   * VivariumErrors; responses are never errors, whatever their status.
   *
   * @example
   * const response = await preview.fetch("/api/items", { method: "POST", body: "{}" });
   */
  readonly fetch: typeof globalThis.fetch;

  constructor(exposed: Exposed, bearer: string | undefined) {
    this.exposed = exposed;
    this.url = new URL(exposed.preview_url).origin;
    this.headers = {
      ...(exposed.ingress_token !== undefined && { "vivarium-preview-token": exposed.ingress_token }),
      ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
    };
    // An arrow function, so that it works without `this` where a `fetch` is expected.
    this.fetch = (input, init) => fetchPreview(this, input, init);
  }
}

async function fetchPreview(
  preview: Pick<Preview, "url" | "headers">,
  input: string | URL | Request,
  init: RequestInit = {},
): Promise<Response> {
  const request = toRequest(preview, input, init);
  const { longFetch } = await import("../long-fetch.ts");
  let hop = { url: request.url, method: request.method, body: await bodyOf(request, init) };
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
    const response = await longFetch(hop.url, {
      method: hop.method,
      headers: { ...headersOf(request, hop.body !== undefined), ...preview.headers },
      body: hop.body,
      signal: request.signal,
    }).catch((cause) => {
      request.signal.throwIfAborted();
      throw errorFromNetwork(cause, preview.url);
    });
    if (!isRedirect(response) || request.redirect === "manual") return response;
    if (request.redirect === "error")
      throw new TypeError(`${hop.url} redirects, which was not to be followed`);
    const next = nextHop(hop, response);
    if (next === undefined) return response;
    await response.body?.cancel();
    hop = next;
  }
  throw new TypeError(`${request.url} redirects more than ${MAX_REDIRECTS} times`);
}

function toRequest({ url }: Pick<Preview, "url">, input: string | URL | Request, init: RequestInit): Request {
  const target = input instanceof Request ? input : new URL(input, url);
  // `fetch` requires `duplex` for a body that is a stream.
  const request = new Request(target, {
    ...init,
    ...(init.body != null && { duplex: "half" }),
  } as RequestInit);
  if (new URL(request.url).origin === url) return request;
  throw new TypeError(`${request.url} is not in the preview ${url}, whose token it must not be told`);
}

/** A stream is sent chunked and once. Any other body is sent with its length, and again after a redirect if needed. */
async function bodyOf(
  request: Request,
  { body }: RequestInit,
): Promise<Blob | ReadableStream<Uint8Array> | undefined> {
  if (request.body === null) return undefined;
  const isStream = body == null || (typeof body === "object" && Symbol.asyncIterator in body);
  return isStream ? request.body : await request.blob();
}

/** The request's headers, without `content-*` if no body is sent. */
function headersOf(request: Request, hasBody: boolean): Record<string, string> {
  const all = [...request.headers];
  return Object.fromEntries(hasBody ? all : all.filter(([name]) => !name.startsWith("content-")));
}
