/**
 * Decides whether a registry's token service may be asked. Without this rule any registry could name any service as its
 * own, and be sent what is meant for another one.
 */
import { getDomain } from "tldts";
import { RegistryError } from "./registry-error.ts";

export interface RealmRules {
  /** Where the registry is asked. */
  origin: URL;
  /** Further hosts of its token service, by the caller's knowledge. */
  realmHosts: readonly string[];
}

/** The address of the token service. */
export function checkRealm(realm: string | undefined, { origin, realmHosts }: RealmRules): URL {
  const refuse = (why: string) =>
    new RegistryError(
      "realm_refused",
      `${origin.host} names a token service ${why}; expected https at ${origin.hostname}`,
    );
  const url = URL.parse(realm ?? "");
  if (!url) throw refuse("that is not an address");
  if (url.username !== "" || url.password !== "") throw refuse("with a user");
  const isAtRegistry = url.origin === origin.origin;
  if (url.protocol !== "https:" && !isAtRegistry) throw refuse("without HTTPS");
  if (isAtRegistry || url.hostname === origin.hostname || realmHosts.includes(url.hostname)) return url;
  if (!isSameDomain(url.hostname, origin.hostname)) throw refuse("of another domain");
  return url;
}

/** Names below a suffix under which everybody registers, such as `co.uk` or `github.io`, have different owners. */
function isSameDomain(one: string, other: string): boolean {
  const domain = (host: string) => getDomain(host, { allowPrivateDomains: true });
  return domain(one) !== null && domain(one) === domain(other);
}
