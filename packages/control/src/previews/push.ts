/** Keeps the node's table of preview routes equal to the rows in the database. */
import { createHash } from "node:crypto";
import type { SessionState } from "@vivarium/contract/api";
import type { PreviewRoute } from "@vivarium/contract/gateway";
import { Coalesced } from "@vivarium/kit/coalesced";
import { NodeError } from "../fleet/node-error.ts";
import type { PreviewDeps } from "./deps.ts";
import { cookieKey } from "./secrets.ts";
import {
  deleteRoutesOfEnded,
  lastTableVersion,
  listRoutes,
  nextVersion,
  type RouteOfSession,
  skipTableVersions,
} from "./store.ts";

type PushDeps = Pick<PreviewDeps, "db" | "nodes" | "signals" | "previewKey" | "log">;

/** Moves within this time are sent in one table. */
const COALESCE_MS = 50;
const ATTEMPTS = 3;

export class PreviewPush {
  readonly #deps: PushDeps;
  /**
   * The last table that the node confirmed to this process. `known` is the version that the node reports for it: 0 if
   * there were no routes and the node had no table, so that none was sent.
   */
  #confirmed: { version: number; known: number; digest: string } | undefined;
  readonly #pushes = new Coalesced(() => this.#pushOrOvertake());
  #timer: NodeJS.Timeout | undefined;

  constructor(deps: PushDeps) {
    this.#deps = deps;
  }

  /** Resolves once the node has confirmed all routes that were committed before this call. */
  ensure(): Promise<void> {
    return this.#pushes.run();
  }

  /** Like `ensure`, but only logs a failure, which the sweep repeats. */
  async attempt(logged: { session_id?: string } = {}): Promise<void> {
    await this.ensure().catch((err: unknown) =>
      this.#deps.log.debug({ err, ...logged }, "routes could not be sent; the sweep repeats it"),
    );
  }

  /** Sends a table after every move of a session, until the returned function is called. */
  followMoves(): () => Promise<void> {
    const stop = this.#deps.signals.onAnyMove(() => {
      this.#timer ??= setTimeout(() => {
        this.#timer = undefined;
        void this.attempt();
      }, COALESCE_MS);
    });
    return async () => {
      stop();
      clearTimeout(this.#timer);
      await this.#pushes.idle();
    };
  }

  /** Sends the table if the node lost it, or another process changed routes. Runs every tick. */
  async check(): Promise<void> {
    await deleteRoutesOfEnded(this.#deps.db);
    const confirmed = this.#confirmed;
    // A table that was confirmed meanwhile is newer than the version compared here.
    if (confirmed && (await this.#knownVersion()) !== confirmed.known && this.#confirmed === confirmed)
      this.#confirmed = undefined;
    await this.ensure();
  }

  async #pushOrOvertake(): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#push();
      } catch (error) {
        const isBehind = error instanceof NodeError && error.code === "network_conflict";
        if (!isBehind || attempt >= ATTEMPTS) throw error;
        // Another process sent a higher version, or the database was restored from a backup.
        await skipTableVersions(this.#deps.db, await this.#knownVersion());
        this.#confirmed = undefined;
      }
    }
  }

  async #push(): Promise<void> {
    if (await this.#isUpToDate()) return;
    // Read after the version is drawn, so that a higher version never has older rows.
    const version = await nextVersion(this.#deps.db, "preview_table_versions");
    const routes = await this.#routes();
    const isUnneeded = routes.length === 0 && (await this.#knownVersion()) === 0;
    if (!isUnneeded) await this.#deps.nodes.putPreviews({ version, routes });
    this.#confirmed = { version, known: isUnneeded ? 0 : version, digest: digestOf(routes) };
  }

  /**
   * Whether the node already has the current routes. If another process drew a later version, it may have sent other
   * routes, from rows that were changed back since.
   */
  async #isUpToDate(): Promise<boolean> {
    const confirmed = this.#confirmed;
    if (!confirmed || digestOf(await this.#routes()) !== confirmed.digest) return false;
    const isLast = (await lastTableVersion(this.#deps.db)) === confirmed.version;
    // A tick may have found meanwhile that the node lost the table.
    return isLast && this.#confirmed === confirmed;
  }

  /** The version of the node's table; 0 if it has none. */
  async #knownVersion(): Promise<number> {
    return (await this.#deps.nodes.info()).previews_version ?? 0;
  }

  async #routes(): Promise<PreviewRoute[]> {
    return (await listRoutes(this.#deps.db)).map((row) => toPreviewRoute(this.#deps.previewKey, row));
  }
}

function digestOf(routes: PreviewRoute[]): string {
  return createHash("sha256").update(JSON.stringify(routes)).digest("base64");
}

function toPreviewRoute(key: Buffer, row: RouteOfSession): PreviewRoute {
  const context = { orgId: row.org_id, sessionId: row.session_id, port: row.port };
  return {
    session_id: row.session_id,
    port: row.port,
    version: row.version,
    visibility: row.visibility,
    ...(row.token_sha256 !== null && { token_sha256: row.token_sha256 }),
    ...(row.bearer_sha256 !== null && { bearer_sha256: row.bearer_sha256 }),
    cookie_key: cookieKey(key, context, row.version),
    ...(row.login_url !== null && { login_url: row.login_url }),
    wake_on_http: row.wake_on_http,
    state: ROUTE_STATES[row.state],
  };
}

/** State of a route by that of its session. The table has no routes of `destroyed` sessions. */
const ROUTE_STATES: Record<SessionState, PreviewRoute["state"]> = {
  creating: "unavailable",
  live: "live",
  paused: "paused",
  lifetime_expired: "gone",
  node_lost: "gone",
  failed: "gone",
  destroyed: "gone",
};
