/** Reads header lists in the form of Node's `rawHeaders`, and removes the headers that are not forwarded. */
export type Header = [name: string, value: string];

/** Headers of one connection, which are never forwarded (RFC 9110 7.6.1). Each proxy also frames bodies anew. */
const HOP_BY_HOP = new Set([
  "connection",
  "http2-settings",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "upgrade",
]);
/** Headers that decide where a message ends and whom it is for: a `Connection` header cannot remove them. */
const FRAMING = ["host", "content-length", "transfer-encoding"];

export function headerPairs(raw: readonly string[]): Header[] {
  const pairs: Header[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) pairs.push([raw[i] as string, raw[i + 1] as string]);
  return pairs;
}

/** The values of all headers of a name; `wanted` in lower case. */
export function valuesOf(headers: readonly Header[], wanted: string): string[] {
  return headers.filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value);
}

/** `name` in lower case. */
export const isHopByHop = (name: string): boolean => HOP_BY_HOP.has(name);

/** Removes the headers of one connection, those that `Connection` names, and those of `also` (in lower case). */
export function withoutHopByHop(headers: readonly Header[], also: readonly string[] = []): Header[] {
  const named = valuesOf(headers, "connection").flatMap((value) => value.toLowerCase().split(/[\s,]+/));
  const dropped = new Set([...named.filter((name) => !FRAMING.includes(name)), ...also]);
  return headers.filter(([name]) => !isHopByHop(name.toLowerCase()) && !dropped.has(name.toLowerCase()));
}
