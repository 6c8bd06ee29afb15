/** Headers of a request to an origin: without the guest's copies of the injected one, and with the credential. Pure. */
import { type Header, valuesOf, withoutHopByHop } from "@vivarium/http1/headers";

/** Headers that some servers take for another method, path or client than the request itself has. */
const OVERRIDES = new Set([
  "forwarded",
  "x-http-method",
  "x-http-method-override",
  "x-method-override",
  "x-original-url",
  "x-rewrite-url",
]);
const OVERRIDE_PREFIXES = ["proxy-", "x-forwarded-"];
/** Headers that the gateway sets itself. */
const OWN = new Set(["host", "accept-encoding", "expect"]);

/**
 * Some servers make no difference between `-`, `_`, `.` and other marks in names: the variables of CGI and WSGI have `_` for
 * each. Marks at an end are dropped, because some servers drop them.
 */
export const canonical = (name: string) =>
  name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]/g, "-")
    .replaceAll(/^-+|-+$/g, "");

/** Asks for a plain body, because the answer is searched for the credential. The credential comes last. */
export function headersForOrigin(
  headers: readonly Header[],
  { host, injected }: { host: string; injected: Header },
): Header[] {
  const kept = withoutHopByHop(headers).filter(([name]) => mayPass(canonical(name), injected[0]));
  return [["Host", host], ...joinCookies(kept), ["Accept-Encoding", "identity"], injected];
}

function mayPass(name: string, injected: string): boolean {
  if (name === canonical(injected) || OVERRIDES.has(name) || OWN.has(name)) return false;
  return !OVERRIDE_PREFIXES.some((prefix) => `${name}-`.startsWith(prefix));
}

/** HTTP/2 may part a cookie header, HTTP/1.1 may not (RFC 9113 8.2.3). */
function joinCookies(headers: readonly Header[]): Header[] {
  const cookies = valuesOf(headers, "cookie");
  if (cookies.length < 2) return [...headers];
  return [...headers.filter(([name]) => name.toLowerCase() !== "cookie"), ["Cookie", cookies.join("; ")]];
}

/** Headers of an answer or its trailers for the guest. `isSecret` finds those that carry the credential. */
export function headersForGuest(
  headers: readonly Header[],
  isSecret: (text: string) => boolean,
): { headers: Header[]; isReflected: boolean } {
  // Alt-Svc offers HTTP/3, which no guest can use.
  const passed = withoutHopByHop(headers, ["transfer-encoding", "alt-svc"]);
  const clean = passed.filter(([name, value]) => !isSecret(name) && !isSecret(value));
  return { headers: clean, isReflected: clean.length < passed.length };
}
