/** `client.templates`, the calls about templates. */
import type { Template, TemplateList, TemplateSave } from "@vivarium/contract/api";
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
