/** `client.keys` and `client.projects`: who may use the service, and for which part of the organisation. */
import type {
  ApiKeyCreate,
  ApiKeyCreated,
  ApiKeyList,
  ProjectCreate,
  ProjectList,
  ProjectPatch,
  ProjectRecord,
} from "@vivarium/contract/api";
import { type CallOptions, getJson, postJson, sendDelete, sendJson, type Transport } from "./transport.ts";

const KEYS = "/v1/api-keys";
const PROJECTS = "/v1/projects";

/** API keys of the organisation, or of one project if the client's key is bound to it. Reached as `client.keys`. */
export class Keys {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Makes a key that can do no more than the client's own. `key` of the answer is shown this once. Rejects with
   * `forbidden` for a longer life, a higher ceiling or another project than the client's key has.
   *
   * @example
   * const { id, key } = await client.keys.create({ name: "ci", project_id: project.id, role: "read" });
   */
  create(request: ApiKeyCreate, options: CallOptions = {}): Promise<ApiKeyCreated> {
    // Never sent twice: a key whose answer was lost would stay, and nobody would know it.
    return postJson(this.#transport, KEYS, request, { ...options, repeatable: false });
  }

  /**
   * The keys that are not revoked, newest first, without the keys themselves.
   *
   * @example
   * const { api_keys } = await client.keys.list();
   */
  list(options: CallOptions = {}): Promise<ApiKeyList> {
    return getJson(this.#transport, KEYS, options);
  }

  /**
   * Revokes a key: it is refused from the answer on, and what it has open ends within seconds. Rejects with `conflict`
   * for the last key that can manage the organisation's keys.
   *
   * @example
   * await client.keys.revoke(id);
   */
  async revoke(id: string, options: CallOptions = {}): Promise<void> {
    await sendDelete(this.#transport, `${KEYS}/${encodeURIComponent(id)}`, options);
  }
}

/** Parts of the organisation that keys can be bound to. Reached as `client.projects`. */
export class Projects {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Makes a project. Rejects with `conflict` if its name is taken.
   *
   * @example
   * const project = await client.projects.create({ name: "web" });
   */
  create(request: ProjectCreate, options: CallOptions = {}): Promise<ProjectRecord> {
    return postJson(this.#transport, PROJECTS, request, { ...options, repeatable: false });
  }

  /** The default project, then the others by name. */
  list(options: CallOptions = {}): Promise<ProjectList> {
    return getJson(this.#transport, PROJECTS, options);
  }

  get(id: string, options: CallOptions = {}): Promise<ProjectRecord> {
    return getJson(this.#transport, projectPath(id), options);
  }

  /** Renames a project, or replaces its labels; `labels: null` removes them. */
  update(id: string, patch: ProjectPatch, { signal }: CallOptions = {}): Promise<ProjectRecord> {
    const call = { method: "PATCH", path: projectPath(id), body: patch, repeatable: true, signal } as const;
    return sendJson(this.#transport, call);
  }

  /** Deletes a project without unfinished sessions, and revokes its keys. Rejects with `conflict` otherwise. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await sendDelete(this.#transport, projectPath(id), options);
  }
}

function projectPath(id: string): string {
  return `${PROJECTS}/${encodeURIComponent(id)}`;
}
