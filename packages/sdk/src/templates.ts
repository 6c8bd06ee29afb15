/** `client.templates`, the calls about templates. */
import type {
  BuildLines,
  Template,
  TemplateImport,
  TemplateList,
  TemplateSave,
} from "@vivarium/contract/api";
import {
  type CallOptions,
  getJson,
  postJson,
  sendDelete,
  sessionPath,
  type TimedOptions,
  type Transport,
} from "./transport.ts";

/** Saved starting points of new sessions. Reached as `client.templates`. */
export class Templates {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Saves a live or paused session as a template of your own. If the name exists, this adds a version. Memory is saved
   * too, unless it may contain secrets (`memory` is false then): sessions of the template boot from its disk.
   *
   * @example
   * await client.templates.save(sessionId, { name: "with-tools" });
   * const session = await client.sessions.create({ template: "with-tools" });
   */
  save(sessionId: string, request: TemplateSave, options: TimedOptions = {}): Promise<Template> {
    const path = sessionPath(sessionId, "/templates");
    return postJson(this.#transport, path, request, { ...options, repeatable: false });
  }

  /**
   * Makes a template of a container image. If the name exists, this adds a version. Resolves once the import is queued:
   * `get` shows how far it is. Of a private image the service pulls with the credential of `client.registries`.
   *
   * @example
   * await client.templates.import({ name: "rust", from_image: "rust:1.90" });
   * const { status, progress, build_error } = await client.templates.get("rust");
   *
   * With `from_layout` the image is one that a session has written as an OCI layout, with buildah or skopeo for instance. The
   * session must not end before the import is past its stage `pull`.
   *
   * @example
   * await client.templates.import({ name: "app", from_layout: { session_id: session.id, path: "image" } });
   */
  import(request: TemplateImport, options: CallOptions = {}): Promise<Template> {
    // Never sent twice: the second one would be refused for the first, or add a version.
    return postJson(this.#transport, "/v1/templates", request, { ...options, repeatable: false });
  }

  /**
   * The last lines of an import's log: of the newest one, or with `name@version` of that version's.
   *
   * @example
   * const { lines } = await client.templates.log("rust");
   */
  log(name: string, options: CallOptions = {}): Promise<BuildLines> {
    return getJson(this.#transport, `${templatePath(name)}/log`, options);
  }

  /**
   * Official templates, then your own, each sorted by name.
   *
   * @example
   * const { templates } = await client.templates.list();
   */
  list(options: CallOptions = {}): Promise<TemplateList> {
    return getJson(this.#transport, "/v1/templates", options);
  }

  /**
   * One template: `name`, or `name@version`.
   *
   * @example
   * const { versions } = await client.templates.get("with-tools");
   */
  get(name: string, options: CallOptions = {}): Promise<Template> {
    return getJson(this.#transport, templatePath(name), options);
  }

  /**
   * Deletes a template of your own, or with `name@version` one of its versions. Sessions and checkpoints that were made
   * from it are not affected.
   *
   * @example
   * await client.templates.delete("with-tools@1");
   */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await sendDelete(this.#transport, templatePath(name), options);
  }
}

function templatePath(name: string): string {
  return `/v1/templates/${encodeURIComponent(name)}`;
}
