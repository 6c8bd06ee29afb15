/** `client.volumes`, the calls about volumes. */
import type { Volume, VolumeCreate, VolumeList } from "@vivarium/contract/api";
import { type CallOptions, getJson, postJson, sendDelete, sendJson, type Transport } from "./transport.ts";

const VOLUMES = "/v1/volumes";

/** Disks that outlive sessions, mounted at `/volume`. Reached as `client.volumes`. */
export class Volumes {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Makes an empty volume. Rejects with `conflict` over the quota of the organisation.
   *
   * @example
   * const volume = await client.volumes.create({ size_gb: 5 });
   * const session = await client.sessions.create({ volume_id: volume.id });
   */
  create(request: VolumeCreate = {}, options: CallOptions = {}): Promise<Volume> {
    // Never sent twice: a volume whose answer was lost would stay, and nobody would know it.
    return postJson(this.#transport, VOLUMES, request, { ...options, repeatable: false });
  }

  /**
   * The volumes of the organisation, newest first, each with the session that has it.
   *
   * @example
   * const { volumes } = await client.volumes.list();
   */
  list(options: CallOptions = {}): Promise<VolumeList> {
    return getJson(this.#transport, VOLUMES, options);
  }

  /**
   * One volume.
   *
   * @example
   * const { attached, last_saved_at } = await client.volumes.get(volume.id);
   */
  get(id: string, options: CallOptions = {}): Promise<Volume> {
    return getJson(this.#transport, volumePath(id), options);
  }

  /**
   * Makes a volume larger, from its next session on. Rejects with `conflict` while a session has it.
   *
   * @example
   * await client.volumes.grow(volume.id, 8);
   */
  grow(id: string, sizeGb: number, options: CallOptions = {}): Promise<Volume> {
    const call = { method: "PATCH", path: volumePath(id), body: { size_gb: sizeGb } } as const;
    return sendJson(this.#transport, { ...call, ...options, repeatable: false });
  }

  /**
   * Deletes a volume and what is on it. Rejects with `conflict` while a session has it.
   *
   * @example
   * await client.volumes.delete(volume.id);
   */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await sendDelete(this.#transport, volumePath(id), options);
  }
}

function volumePath(id: string): string {
  return `${VOLUMES}/${encodeURIComponent(id)}`;
}
