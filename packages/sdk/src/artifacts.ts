/** `client.artifacts` and `session.artifacts`, the calls about files captured out of sessions. */
import type { Artifact, ArtifactCapture, ArtifactList } from "@vivarium/contract/api";
import { errorFromNetwork, errorFromResponse, VivariumError } from "./errors.ts";
import { type CallOptions, getJson, postJson, sendDelete, sessionPath, type Transport } from "./transport.ts";

const WAIT_TIMEOUT_MS = 3_600_000;
const FIRST_POLL_MS = 200;
const SLOWEST_POLL_MS = 2_000;

/** Files captured out of sessions, which outlive them. Reached as `client.artifacts`. */
export class Artifacts {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * The manifest of an artifact. Its `files` have links that need no key and are valid for an hour.
   *
   * @example
   * const { status, files } = await client.artifacts.get(artifactId);
   */
  get(artifactId: string, options: CallOptions = {}): Promise<Artifact> {
    return getJson(this.#transport, artifactPath(artifactId), options);
  }

  /**
   * Waits until an artifact is `ready`, and resolves to its manifest. Rejects with `artifact_failed` when the capture has
   * failed, and with `wait_timeout` after `timeoutMs` (default: an hour).
   *
   * @example
   * const { files } = await client.artifacts.waitUntilReady(artifactId);
   */
  async waitUntilReady(
    artifactId: string,
    options: CallOptions & { timeoutMs?: number } = {},
  ): Promise<Artifact> {
    const deadline = Date.now() + (options.timeoutMs ?? WAIT_TIMEOUT_MS);
    for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(pollMs * 1.5, SLOWEST_POLL_MS)) {
      const artifact = await this.get(artifactId, { signal: options.signal });
      if (artifact.status === "ready") return artifact;
      if (artifact.status === "failed")
        throw new VivariumError(
          "artifact_failed",
          `artifact ${artifactId}: ${artifact.error ?? "no reason given"}`,
        );
      if (Date.now() >= deadline)
        throw new VivariumError("wait_timeout", `artifact ${artifactId} is still pending`);
      await this.#transport.sleep(pollMs, options.signal);
      options.signal?.throwIfAborted();
    }
  }

  /**
   * Streams a file of a manifest, from byte `from` on. Leaving the loop ends the transfer. Rejects with `forbidden` when
   * the link is older than an hour: read the manifest again.
   *
   * @example
   * for await (const chunk of client.artifacts.download(file)) process.stdout.write(chunk);
   */
  async *download(
    { url, path, size_bytes: size }: NonNullable<Artifact["files"]>[number],
    { from = 0, signal }: CallOptions & { from?: number } = {},
  ): AsyncGenerator<Uint8Array, void, void> {
    if (from >= size) return;
    if (url === undefined) throw new VivariumError("validation", `${path} has no link`, { status: 400 });
    const headers: Record<string, string> = from > 0 ? { range: `bytes=${from}-` } : {};
    let bytes = from;
    try {
      const response = await this.#transport.fetch(url, { method: "GET", headers, signal });
      if (!response.ok) throw await errorFromResponse(response);
      if (from > 0 && response.status !== 206)
        throw new VivariumError("error", `${path}: the service ignored the range`, {
          status: response.status,
        });
      for await (const chunk of response.body ?? []) {
        bytes += chunk.byteLength;
        yield chunk;
      }
    } catch (cause) {
      signal?.throwIfAborted();
      if (cause instanceof VivariumError) throw cause;
      throw brokenOff(path, errorFromNetwork(cause, this.#transport.url));
    }
    if (bytes !== size) throw brokenOff(path);
  }

  /**
   * Keeps an artifact until `days` from now, but never shorter than before, and 90 days from its capture at most.
   *
   * @example
   * const { expires_at } = await client.artifacts.extend(artifactId, 30);
   */
  extend(artifactId: string, days: number, options: CallOptions = {}): Promise<Artifact> {
    const path = `${artifactPath(artifactId)}/extend`;
    return postJson(this.#transport, path, { ttl_days: days }, { ...options, repeatable: true });
  }

  /**
   * Deletes an artifact and its files.
   *
   * @example
   * await client.artifacts.delete(artifactId);
   */
  async delete(artifactId: string, options: CallOptions = {}): Promise<void> {
    await sendDelete(this.#transport, artifactPath(artifactId), options);
  }
}

/** Captures of one session. Reached as `session.artifacts`. */
export class SessionArtifacts {
  readonly #transport: Transport;
  readonly #sessionId: string;

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#sessionId = sessionId;
  }

  /**
   * Copies files out of the session, in the background. `paths` are files, directories or globs below /workspace. A paused
   * session is woken. A request whose answer was lost is not repeated, since the capture may have begun.
   *
   * @example
   * const { id } = await session.artifacts.capture(["results", "*.log"]);
   * const { files } = await client.artifacts.waitUntilReady(id);
   */
  capture(paths: string[], options: CallOptions = {}): Promise<Artifact> {
    const body: ArtifactCapture = { paths };
    const path = sessionPath(this.#sessionId, "/artifacts");
    return postJson(this.#transport, path, body, { ...options, repeatable: false });
  }

  /**
   * The session's artifacts, newest first, also after its end.
   *
   * @example
   * const { artifacts } = await session.artifacts.list();
   */
  list(options: CallOptions = {}): Promise<ArtifactList> {
    return getJson(this.#transport, sessionPath(this.#sessionId, "/artifacts"), options);
  }
}

function artifactPath(artifactId: string): string {
  return `/v1/artifacts/${encodeURIComponent(artifactId)}`;
}

function brokenOff(path: string, cause?: unknown): VivariumError {
  const message = `the download of ${path} broke off; download it again`;
  return new VivariumError("stream_interrupted", message, { status: 200, retryable: true, cause });
}
