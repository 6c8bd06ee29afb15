/** One repository of a registry, asked over the interface that all registries share (OCI distribution, Docker's v2). */
import { readAtMost } from "@vivarium/kit/read-at-most";
import { Authorizer, type Credential } from "./authorizer.ts";
import { type Dial, dialPublic } from "./dial.ts";
import { HttpClient } from "./http-client.ts";
import { PULL_LIMITS, type PullLimits } from "./limits.ts";
import { type FinalAnswer, getFollowing } from "./redirects.ts";
import { apiHostOf, normalRegistry } from "./reference.ts";
import { RegistryError } from "./registry-error.ts";
import type { ImageSource, Sent } from "./source.ts";
import { failureOfStatus } from "./status-failure.ts";

export interface RegistryOptions {
  /** The registry for which the credential is meant is named with it. */
  credential?: Credential & { registry: string };
  /** Hosts of token services outside of the registry's own domain. */
  realmHosts?: readonly string[];
  /** Asks by plain HTTP: for a registry in a network that the operator trusts. */
  isInsecure?: boolean;
  /** Certificates (PEM) that are trusted instead of the system's. */
  ca?: string;
  /** Connects to hosts; by default to public addresses alone. */
  dial?: Dial;
  limits?: Partial<PullLimits>;
}

/** Headers of a request for content. */
interface Wanted {
  accept?: string;
  range?: string;
}

export class Registry implements ImageSource {
  readonly limits: PullLimits;
  readonly #client: HttpClient;
  readonly #authorizer: Authorizer;
  readonly #origin: URL;
  readonly #repository: string | undefined;
  readonly #isWithCredential: boolean;

  /** Without a repository only `ping` has a meaning. */
  constructor(registry: string, repository: string | undefined, options: RegistryOptions) {
    const { credential, realmHosts = [], isInsecure = false, ca, dial = dialPublic } = options;
    if (credential && normalRegistry(credential.registry) !== registry)
      throw new Error(`the credential is for ${credential.registry}, not for ${registry}`);
    this.limits = { ...PULL_LIMITS, ...options.limits };
    this.#origin = new URL(`${isInsecure ? "http" : "https"}://${apiHostOf(registry)}`);
    this.#repository = repository;
    this.#isWithCredential = credential !== undefined;
    this.#client = new HttpClient({ dial, ca, limits: this.limits });
    this.#authorizer = new Authorizer({
      client: this.#client,
      origin: this.#origin,
      realmHosts,
      credential,
      scope: repository === undefined ? undefined : `repository:${repository}:pull`,
      limits: this.limits,
    });
  }

  /** Resolves if this is a registry, and takes the credential if there is one. */
  async ping(signal: AbortSignal): Promise<void> {
    const answer = await this.#get("/v2/", {}, signal);
    await answer.discard();
    if (answer.status !== 200) throw this.#failureOf(answer, "the interface /v2/");
  }

  async manifest(name: string, accept: string, signal: AbortSignal): Promise<Sent> {
    return await this.#content(`manifests/${name}`, `manifest ${name}`, { accept }, signal);
  }

  async blob(digest: string, start: number, signal: AbortSignal): Promise<Sent> {
    const wanted = start === 0 ? {} : { range: `bytes=${start}-` };
    return await this.#content(`blobs/${digest}`, digest, wanted, signal);
  }

  async close(): Promise<void> {
    await this.#client.close();
  }

  async #content(path: string, what: string, wanted: Wanted, signal: AbortSignal): Promise<Sent> {
    const answer = await this.#get(`/v2/${this.#repository}/${path}`, { ...wanted }, signal);
    const isWanted =
      answer.status === 200 || (wanted.range !== undefined && [206, 416].includes(answer.status));
    const [encoding = "identity"] = answer.valuesOf("content-encoding");
    if (isWanted && encoding === "identity") return { ...answer, sender: answer.url.host };
    await answer.discard();
    if (isWanted)
      throw new RegistryError(
        "registry_failed",
        `${answer.url.host} sends ${what} in an encoding that was not asked for`,
      );
    throw this.#failureOf(answer, what);
  }

  async #get(path: string, headers: Record<string, string>, signal: AbortSignal): Promise<FinalAnswer> {
    const ask = (authorization: string | undefined) => {
      const request = {
        url: new URL(path, this.#origin),
        headers,
        authorization,
        redirects: this.limits.redirects,
      };
      return getFollowing(this.#client, request, signal);
    };
    const used = this.#authorizer.header;
    const answer = await ask(used);
    if (answer.status !== 401 || !answer.isOwn) return answer;
    await answer.discard();
    await this.#authorizer.renew(answer, used, signal);
    return await ask(this.#authorizer.header);
  }

  #failureOf({ status, isOwn, url, ...answer }: FinalAnswer, what: string): RegistryError {
    const { host } = this.#origin;
    if (!isOwn && status !== 429)
      // The address to which a registry redirects is good for minutes: a new one may do.
      return new RegistryError(
        "registry_failed",
        `${url.host}, to which ${host} redirects, answers with status ${status}`,
        {
          isTransient: true,
        },
      );
    if (status === 401 || status === 403) return this.#refusal(what);
    if (status === 404 || status === 410)
      return new RegistryError("not_found", `${this.#place} does not have ${what}`);
    return failureOfStatus({ status, url, ...answer }, host);
  }

  #refusal(what: string): RegistryError {
    const { host } = this.#origin;
    return new RegistryError(
      "authentication_failed",
      this.#isWithCredential
        ? `${this.#place} refuses ${what} with the stored credential`
        : `${this.#place} refuses ${what}: it is private or does not exist, and no credential is stored for ${host}`,
    );
  }

  get #place(): string {
    return this.#repository === undefined ? this.#origin.host : `${this.#origin.host}/${this.#repository}`;
  }
}

/** A whole document of an answer. */
export async function readDocument(
  answer: Pick<Sent, "body">,
  what: string,
  limitBytes: number,
): Promise<Buffer> {
  const bytes = await readAtMost(answer.body, limitBytes);
  if (bytes) return bytes;
  throw new RegistryError("too_large", `${what} is larger than ${limitBytes} bytes`);
}
