/** A whole control plane for one test file: its own database, a fake node, requests in memory. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { FakeNode } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import type { Log } from "@vivarium/kit/log";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import pg from "pg";
import { apiKeyDigest, newApiKey } from "../src/access/api-key.ts";
import { loadPepper } from "../src/access/pepper.ts";
import { type App, createApp } from "../src/app.ts";
import type { EgressCaps } from "../src/egress/org-cap.ts";
import type { ObjectSettings } from "../src/open-objects.ts";
import type { KekSource } from "../src/secrets/kek-source.ts";
import type { VolumeSizes } from "../src/volumes/quota.ts";
import { createDatabase, silentLog } from "./database.ts";

/** The key-encryption key of the tests. */
export const KEKS = `kek_1:${Buffer.alloc(32, "k").toString("base64url")}`;

export interface Answer {
  status: number;
  headers: Record<string, unknown>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  body: any;
  text: string;
}

export interface Ask {
  key?: string | null;
  body?: unknown;
  /** Sent unchanged, instead of `body`. */
  raw?: string | Buffer;
  headers?: Record<string, string>;
}

export class Control {
  readonly app: App;
  readonly node: FakeNode;
  readonly key: string;
  /** A pool of one connection, so that queries run one at a time. */
  readonly sql: pg.Pool;
  readonly settings: {
    databaseUrl: string;
    nodeSocket: string;
    controlDir: string;
    tickMs: number;
    isAlone: boolean;
    kekSource: KekSource | undefined;
    hasArchives?: boolean;
  };

  constructor(parts: Pick<Control, "app" | "node" | "key" | "sql" | "settings">) {
    this.app = parts.app;
    this.node = parts.node;
    this.key = parts.key;
    this.sql = parts.sql;
    this.settings = parts.settings;
  }

  /** Makes one request, with `call` as `"POST /v1/sessions"`. */
  async ask(call: string, { key = this.key, body, raw, headers }: Ask = {}): Promise<Answer> {
    const [method, url = ""] = call.split(" ");
    const payload = raw ?? (body === undefined ? undefined : JSON.stringify(body));
    const response = await this.app.server.inject({
      method: method as "GET",
      url,
      headers: { ...(key !== null && { authorization: `Bearer ${key}` }), ...headers },
      ...(payload !== undefined && { payload }),
    });
    const isJson = String(response.headers["content-type"]).startsWith("application/json");
    return {
      status: response.statusCode,
      headers: response.headers,
      body: isJson ? response.json() : undefined,
      text: response.body,
    };
  }

  async create(body: object = {}, key = this.key): Promise<string> {
    const answer = await this.ask("POST /v1/sessions", { body, key });
    if (answer.status !== 200) throw new Error(`create answered ${answer.status}: ${answer.text}`);
    return answer.body.session_id as string;
  }

  async createLive(body: object = {}, key = this.key): Promise<string> {
    const id = await this.create(body, key);
    await this.until(id, "live", key);
    return id;
  }

  async until(id: string, state: string, key = this.key): Promise<Answer> {
    return await eventually(async () => {
      const answer = await this.ask(`GET /v1/sessions/${id}`, { key });
      if (answer.body.state !== state) throw new Error(`${id} is ${JSON.stringify(answer.body)}`);
      return answer;
    });
  }

  exec(id: string, command: string[] = ["true"], more: object = {}): Promise<Answer> {
    return this.ask(`POST /v1/sessions/${id}/exec`, { body: { command, ...more } });
  }

  /**
   * Makes a guest operation of a live session, and returns once its end is written to the row. Written after the test
   * has moved its clock, the end would look later than it was.
   */
  async use<T>(id: string, operation: () => Promise<T>): Promise<T> {
    const before = await this.sql.query("select last_active_at from sessions where id = $1", [id]);
    const answer = await operation();
    await eventually(async () => {
      // While an operation is in flight, the session is busy for longer than this.
      const { rowCount } = await this.sql.query(
        `select from sessions
          where id = $1 and last_active_at > $2 and busy_until <= now() + interval '1500 milliseconds'`,
        [id, before.rows[0].last_active_at],
      );
      if (rowCount === 0) throw new Error(`the end of an operation of ${id} is not flushed`);
    });
    return answer;
  }

  /** Changes what the node says of itself, and returns once control knows it. */
  async offer(change: Partial<FakeNode["info"]>): Promise<void> {
    this.node.info = { ...this.node.info, ...change };
    // A check of health asks the node, and is late if this process is stalled.
    await eventually(async () => {
      const { status, text } = await this.ask("GET /v1/healthz", { key: null });
      if (status !== 200) throw new Error(`the node's answer did not arrive: ${text}`);
    });
  }

  async destroyAll(): Promise<void> {
    const { body } = await this.ask("GET /v1/sessions?limit=500");
    for (const { session_id } of body.sessions) await this.ask(`DELETE /v1/sessions/${session_id}`);
  }

  /** Adds a key: of a new organisation, or of `orgId`. */
  async addKey(
    options: { orgId?: string; scopedProjectId?: string; ceiling?: number } = {},
  ): Promise<string> {
    const key = newApiKey();
    const orgId = options.orgId ?? `org_${randomId()}`;
    if (!options.orgId)
      await this.sql.query("insert into orgs (id, name, concurrent_sessions) values ($1, 'other', 10)", [
        orgId,
      ]);
    await this.sql.query(
      "insert into api_keys (id, org_id, name, digest, scoped_project_id, concurrent_sessions) values ($1, $2, 'k', $3, $4, $5)",
      [
        `key_${randomId()}`,
        orgId,
        apiKeyDigest(await loadPepper(this.settings.controlDir), key),
        options.scopedProjectId,
        options.ceiling,
      ],
    );
    return key;
  }

  async close(): Promise<void> {
    try {
      await this.app.close();
      await this.sql.end();
    } finally {
      await this.node.close();
      rmSync(this.settings.controlDir, { recursive: true, force: true });
    }
  }
}

export async function startControl({
  sweeps = true,
  log = silentLog,
  ...more
}: {
  sweeps?: boolean;
  log?: Log;
  forkChildren?: number;
  sessionCeiling?: number;
  wrongCredentialsPerMinute?: number;
  egressCaps?: EgressCaps;
  volumeSizes?: VolumeSizes;
  kekSource?: KekSource | undefined;
  objects?: ObjectSettings;
  hasArchives?: boolean;
  hasWarmTier?: boolean;
  requireDurablePause?: boolean;
} = {}): Promise<Control> {
  const databaseUrl = await createDatabase();
  const node = new FakeNode({ isScripted: true });
  await node.listen();
  const controlDir = mkdtempSync(path.join(tmpdir(), "control-"));
  const settings = {
    databaseUrl,
    nodeSocket: node.socketPath,
    controlDir,
    // Each tick is some thirty queries: on a busy host, shorter ones are most of what tests compute.
    tickMs: 1_000,
    isAlone: true,
    kekSource: { kind: "text", text: KEKS } as KekSource | undefined,
    // All requests of a test come from one address.
    wrongCredentialsPerMinute: 0,
    ...more,
  };
  const app = await createApp(settings, log);
  if (sweeps) app.startSweeps();
  const sql = new pg.Pool({ connectionString: databaseUrl, max: 1, idleTimeoutMillis: 0 });
  const key = readFileSync(path.join(controlDir, "bootstrap.key"), "utf8").trim();
  return new Control({ app, node, key, sql, settings });
}

/** Maximum that one check counts towards the timeout, so that a stalled test process does not use it up. */
const MAX_CHECK_MS = 100;
/** Only what never comes is waited for as long as this. */
const PATIENCE_MS = 30_000;

export async function eventually<T>(check: () => Promise<T> | T, withinMs = PATIENCE_MS): Promise<T> {
  for (let waited = 0; ; ) {
    const began = performance.now();
    try {
      return await check();
    } catch (error) {
      if (waited > withinMs * SLOWNESS) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
    waited += Math.min(performance.now() - began, MAX_CHECK_MS);
  }
}
