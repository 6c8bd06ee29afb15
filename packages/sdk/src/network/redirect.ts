/** Decides which request follows a redirect of a preview. */
const REDIRECTS = [301, 302, 303, 307, 308];
const KEEPS_METHOD = [307, 308];

/** A request of a chain of redirects. */
interface Hop {
  url: string;
  method: string;
  body: Blob | ReadableStream<Uint8Array> | undefined;
}

export function isRedirect({ status, headers }: Response): boolean {
  return REDIRECTS.includes(status) && headers.has("location");
}

/** The request after a redirect. Undefined for another origin, or when a stream would have to be sent again. */
export function nextHop({ url, method, body }: Hop, { status, headers }: Response): Hop | undefined {
  const target = URL.parse(headers.get("location") ?? "", url);
  if (target === null || target.origin !== new URL(url).origin) return undefined;
  const isKept = KEEPS_METHOD.includes(status) || method === "HEAD" || (status !== 303 && method !== "POST");
  if (!isKept) return { url: target.href, method: "GET", body: undefined };
  return body instanceof ReadableStream ? undefined : { url: target.href, method, body };
}
