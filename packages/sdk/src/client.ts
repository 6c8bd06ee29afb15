/** `Client`, through which programs reach the service. */
import type {
  BatchExecRequest,
  BatchExecResult,
  Health,
  RunRequest,
  RunResult,
} from "@vivarium/contract/api";
import { Artifacts } from "./artifacts.ts";
import { Audit } from "./audit.ts";
import { Checkpoints } from "./checkpoints.ts";
import { Connections } from "./connections.ts";
import { VivariumError } from "./errors.ts";
import { Events } from "./events.ts";
import { Keys, Projects } from "./keys.ts";
import { Operator } from "./operator.ts";
import { Org } from "./org.ts";
import { Registries } from "./registries.ts";
import { Session } from "./session.ts";
import { Sessions } from "./sessions.ts";
import { Templates } from "./templates.ts";
import { type CallOptions, type Fetch, getJson, postJson, type Transport } from "./transport.ts";
import { Volumes } from "./volumes.ts";

const DEFAULT_URL = "http://127.0.0.1:7400";
const DEFAULT_RETRIES = 3;

/** Options of a client. */
export interface ClientOptions {
  /** Base URL, without `/v1`. Default: `http://127.0.0.1:7400`. */
  url?: string;
  /** API key (`viv_…`). Blanks and line ends around it are ignored. Only `health()` works without a key. */
  apiKey?: string;
  /** Retries of one request at most. Only requests that had no effect or are safe to repeat are retried. Default: 3. */
  retries?: number;
  /** Replaces the global `fetch`, for tests, proxies, or calls of more than five minutes (`@vivarium/sdk/long-fetch`). */
  fetch?: Fetch;
  /** Replaces the pause between retries and polls, for tests. */
  sleep?: (ms: number, signal?: AbortSignal) => Promise<void>;
}

/**
 * Client of the Vivarium service.
 *
 * @example
 * import { Client } from "@vivarium/sdk";
 *
 * const client = new Client({ url: "http://127.0.0.1:7400", apiKey: "viv_…" });
 * const { stdout } = await client.run({ language: "python", code: "print(6 * 7)" });
 * console.log(stdout); // 42
 */
export class Client {
  /** Virtual machines that keep their state between calls. */
  readonly sessions: Sessions;
  /** Saved states of sessions. */
  readonly checkpoints: Checkpoints;
  /** Files captured out of sessions. */
  readonly artifacts: Artifacts;
  /** Saved starting points of new sessions. */
  readonly templates: Templates;
  /** Disks that outlive sessions. */
  readonly volumes: Volumes;
  /** Credentials for registries of container images. */
  readonly registries: Registries;
  /** Credentials that the service adds to requests of sessions. */
  readonly connections: Connections;
  /** Settings for all sessions of the organisation. */
  readonly org: Org;
  /** The whole installation, for the operator's key. */
  readonly operator: Operator;
  /** API keys. */
  readonly keys: Keys;
  /** Parts of the organisation that keys can be bound to. */
  readonly projects: Projects;
  /** Events of the organisation's sessions. */
  readonly events: Events;
  /** Changes, denials and commands, with their callers. */
  readonly audit: Audit;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    this.#transport = {
      url: (options.url ?? DEFAULT_URL).replace(/\/+$/, ""),
      apiKey: readApiKey(options.apiKey),
      fetch: options.fetch ?? ((url, init) => fetch(url, init)),
      retries: options.retries ?? DEFAULT_RETRIES,
      sleep: options.sleep ?? sleep,
    };
    this.sessions = new Sessions(this.#transport);
    this.checkpoints = new Checkpoints(this.#transport);
    this.artifacts = new Artifacts(this.#transport);
    this.templates = new Templates(this.#transport);
    this.volumes = new Volumes(this.#transport);
    this.registries = new Registries(this.#transport);
    this.connections = new Connections(this.#transport);
    this.events = new Events(this.#transport);
    this.org = new Org(this.#transport);
    this.operator = new Operator(this.#transport);
    this.keys = new Keys(this.#transport);
    this.projects = new Projects(this.#transport);
    this.audit = new Audit(this.#transport);
  }

  /**
   * Files, processes, terminals and code contexts of one session. Sends no request.
   *
   * @example
   * const text = await client.session(sessionId).files.read("notes.txt");
   */
  session(sessionId: string): Session {
    return new Session(this.#transport, sessionId);
  }

  /**
   * Runs code in a virtual machine of its own that is destroyed afterwards. A non-zero exit code and a timeout are
   * results, not errors.
   *
   * @example
   * const result = await client.run({
   *   language: "node",
   *   code: "console.log(require('is-odd')(3))",
   *   dependencies: ["is-odd"],
   * });
   * console.log(result.stdout, result.exit_code);
   */
  run(request: RunRequest, options: CallOptions = {}): Promise<RunResult> {
    // Never sent twice: the code may have effects outside the virtual machine.
    return postJson(this.#transport, "/v1/sessions/exec", request, { ...options, repeatable: false });
  }

  /**
   * Runs one command in up to 50 sessions at once. Each item of `results` is a result or an `error` with its `code`.
   *
   * @example
   * const { results } = await client.batchExec({ session_ids: [a, b], command: ["hostname"] });
   */
  batchExec(request: BatchExecRequest, options: CallOptions = {}): Promise<BatchExecResult> {
    return postJson(this.#transport, "/v1/sessions/batch/exec", request, { ...options, repeatable: false });
  }

  /**
   * Reports whether the service works, its version, and how sessions are isolated. Needs no key.
   *
   * @example
   * const { status, isolation } = await client.health();
   */
  health(options: CallOptions = {}): Promise<Health> {
    return getJson(this.#transport, "/v1/healthz", options);
  }
}

/** Resolves after `ms`, or early when the signal aborts. */
function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done, { once: true });
  });
}

/** Throws for a key that cannot be a header. Hazard: `fetch` would put that key into its error message. */
function readApiKey(key: string | undefined): string | undefined {
  const trimmed = key?.trim();
  if (trimmed === undefined || /^[\x20-\x7e]*$/.test(trimmed)) return trimmed;
  throw new VivariumError("validation", "the API key is not one line of ASCII characters; expected viv_…", {
    status: 400,
  });
}
