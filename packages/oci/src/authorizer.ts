/** Obtains what a registry wants as Authorization: a token of its token service, or the credential itself. */
import { readAtMost } from "@vivarium/kit/read-at-most";
import { z } from "zod";
import { type Challenge, readChallenges } from "./challenge.ts";
import type { Answer, HttpClient } from "./http-client.ts";
import type { PullLimits } from "./limits.ts";
import { checkRealm } from "./realm.ts";
import { RegistryError } from "./registry-error.ts";
import { failureOfStatus } from "./status-failure.ts";

export interface Credential {
  username: string;
  password: string;
}

export interface AuthorizerOptions {
  client: HttpClient;
  origin: URL;
  realmHosts: readonly string[];
  credential?: Credential;
  /** The rights that are asked for, whatever the challenge says; undefined to have the credential checked only. */
  scope?: string;
  limits: PullLimits;
}

/** Token services name the token in one of two ways. */
const TokenAnswer = z.object({ token: z.string().optional(), access_token: z.string().optional() });
/** Anything else could end the header. */
const TOKEN = /^[\x21-\x7e]{1,65536}$/;

/** The authorization of all requests of a pull. It is renewed when the registry does not take it any more. */
export class Authorizer {
  readonly #options: AuthorizerOptions;
  #renewal: Promise<void> | undefined;
  #header: string | undefined;

  constructor(options: AuthorizerOptions) {
    this.#options = options;
  }

  /** Header of the next request; undefined before the registry has asked for one. */
  get header(): string | undefined {
    return this.#header;
  }

  /** Answers a 401 to a request that was sent with the header `used`. Requests that fail together share a renewal. */
  async renew(refusal: Answer, used: string | undefined, signal: AbortSignal): Promise<void> {
    if (used !== this.#header) return;
    this.#renewal ??= this.#obtain(readChallenges(refusal.valuesOf("www-authenticate")), signal)
      .then((header) => {
        this.#header = header;
      })
      .finally(() => {
        this.#renewal = undefined;
      });
    await this.#renewal;
  }

  async #obtain(challenges: Challenge[], signal: AbortSignal): Promise<string> {
    const bearer = challenges.find(({ scheme }) => scheme === "bearer");
    if (bearer) return `Bearer ${await this.#fetchToken(bearer, signal)}`;
    const { credential, origin } = this.#options;
    if (!challenges.some(({ scheme }) => scheme === "basic"))
      throw new RegistryError("registry_failed", `${origin.host} does not say how to authenticate`);
    if (!credential)
      throw new RegistryError(
        "authentication_failed",
        `${origin.host} wants a credential, and none is stored for it`,
      );
    return basic(credential);
  }

  async #fetchToken({ parameters }: Challenge, signal: AbortSignal): Promise<string> {
    const { client, origin, credential, scope, limits } = this.#options;
    const url = checkRealm(parameters.get("realm"), this.#options);
    const service = parameters.get("service");
    if (service !== undefined) url.searchParams.set("service", service);
    if (scope !== undefined) url.searchParams.set("scope", scope);
    const answer = await client.get(url, credential ? { authorization: basic(credential) } : {}, signal);
    if (answer.status !== 200) throw await this.#failureOf(answer);
    const bytes = await readAtMost(answer.body, limits.tokenBytes);
    const token = bytes && tokenOf(bytes);
    if (token === undefined)
      throw new RegistryError("registry_failed", `the token service of ${origin.host} sends no token`);
    return token;
  }

  async #failureOf(answer: Answer): Promise<RegistryError> {
    const { origin, credential } = this.#options;
    await answer.discard();
    if (answer.status >= 300 && answer.status < 400)
      return new RegistryError(
        "realm_refused",
        `the token service of ${origin.host} redirects, which is not followed`,
      );
    // A service may answer 404 for a repository that it does not show.
    if ([400, 401, 403, 404].includes(answer.status))
      return new RegistryError(
        "authentication_failed",
        credential
          ? `${origin.host} refuses the credential`
          : `${origin.host} wants a credential, and none is stored for it`,
      );
    return failureOfStatus(answer, `the token service of ${origin.host}`);
  }
}

function basic({ username, password }: Credential): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
}

function tokenOf(bytes: Buffer): string | undefined {
  try {
    const { token, access_token } = TokenAnswer.parse(JSON.parse(bytes.toString("utf8")));
    return [token, access_token].find((one) => one !== undefined && TOKEN.test(one));
  } catch {
    return undefined;
  }
}
