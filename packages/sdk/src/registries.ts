/** `client.registries`: credentials for registries of container images. */
import type {
  RegistryCredential,
  RegistryCredentialCreate,
  RegistryCredentialList,
} from "@vivarium/contract/api";
import { type CallOptions, getJson, postJson, sendDelete, type Transport } from "./transport.ts";

const CREDENTIALS = "/v1/registry-credentials";

/** Credentials for registries of container images. Reached as `client.registries`. */
export class Registries {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Stores a credential, whose secret no answer shows. Rejects with `conflict` if its name is taken.
   *
   * @example
   * await client.registries.create({
   *   name: "ghcr",
   *   registry_host: "ghcr.io",
   *   username: "octocat",
   *   secret: process.env.GHCR_TOKEN ?? "",
   * });
   */
  create(request: RegistryCredentialCreate, options: CallOptions = {}): Promise<RegistryCredential> {
    // Never sent twice: the second one would be refused for the name of the first.
    return postJson(this.#transport, CREDENTIALS, request, { ...options, repeatable: false });
  }

  /**
   * The credentials, newest first, without their secrets.
   *
   * @example
   * const { credentials } = await client.registries.list();
   */
  list(options: CallOptions = {}): Promise<RegistryCredentialList> {
    return getJson(this.#transport, CREDENTIALS, options);
  }

  /**
   * Deletes the credential of a name. Resolves also if there is none.
   *
   * @example
   * await client.registries.delete("ghcr");
   */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await sendDelete(this.#transport, `${CREDENTIALS}/${encodeURIComponent(name)}`, options);
  }
}
