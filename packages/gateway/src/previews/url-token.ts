/**
 * Finds and removes the ingress token in a URL, `?t=…`. Only values in the form of a token count: development servers
 * use `?t=` with a timestamp against caches, and must still get that.
 */
const TOKEN = /^[A-Za-z0-9_-]{43}$/;
const MAX_TRIED = 8;

/** The tokens in a request's target or a whole URL. */
export function tokensIn(url: string): string[] {
  return queryOf(url)
    .split("&")
    .map(tokenOf)
    .filter((token) => token !== undefined)
    .slice(0, MAX_TRIED);
}

/** The URL without its tokens, the rest unchanged byte for byte. */
export function withoutTokens(url: string): string {
  const start = url.indexOf("?");
  if (start === -1) return url;
  const query = queryOf(url);
  const rest = url.slice(start + 1 + query.length);
  const parts = query.split("&");
  const kept = parts.filter((part) => tokenOf(part) === undefined);
  if (kept.length === parts.length) return url;
  return url.slice(0, start) + (kept.length === 0 ? "" : `?${kept.join("&")}`) + rest;
}

function queryOf(url: string): string {
  const [, query = ""] = /^[^?#]*\?([^#]*)/.exec(url) ?? [];
  return query;
}

function tokenOf(part: string): string | undefined {
  const [key = "", ...value] = part.split("=");
  const token = decoded(value.join("="));
  return decoded(key) === "t" && TOKEN.test(token) ? token : undefined;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
