/** Follows the redirects of a registry. An Authorization header stays with the origin for which it was made. */
import type { Answer, HttpClient } from "./http-client.ts";
import { RegistryError } from "./registry-error.ts";

export interface Request {
  url: URL;
  headers: Record<string, string>;
  authorization: string | undefined;
  /** The most hops. */
  redirects: number;
}

/** `isOwn`: the origin that was asked has answered itself, and has seen the authorization. */
export type FinalAnswer = Answer & { isOwn: boolean };

const REDIRECTS = [301, 302, 303, 307, 308];

export async function getFollowing(
  client: HttpClient,
  { url, headers, authorization, redirects }: Request,
  signal: AbortSignal,
): Promise<FinalAnswer> {
  let here = url;
  let isOwn = true;
  for (let hop = 0; hop <= redirects; hop++) {
    const sent = isOwn && authorization !== undefined ? { ...headers, authorization } : headers;
    const answer = await client.get(here, sent, signal);
    if (!REDIRECTS.includes(answer.status)) return { ...answer, isOwn };
    await answer.discard();
    here = targetOf(answer, url);
    // Once it has left, the chain is led by others, also when it comes back.
    isOwn &&= here.origin === url.origin;
  }
  throw new RegistryError("redirect_refused", `${url.host} redirects more than ${redirects} times`);
}

/** A target is reached by HTTPS, except the registry itself if it was asked without. */
function targetOf(answer: Answer, asked: URL): URL {
  const refuse = (why: string) =>
    new RegistryError("redirect_refused", `${answer.url.host} redirects ${why}`);
  const [location, ...more] = answer.valuesOf("location");
  if (location === undefined || more.length > 0) throw refuse("to nowhere");
  const target = URL.parse(location, answer.url.href);
  if (!target) throw refuse("to a malformed address");
  if (target.username !== "" || target.password !== "") throw refuse("to an address with a user");
  if (target.protocol !== "https:" && target.origin !== asked.origin)
    throw refuse("to an address without HTTPS");
  if (!/^https?:$/.test(target.protocol)) throw refuse("to an address without HTTPS");
  return target;
}
