/** Keeps the node's table of routes what the rows say. */
import { createHash } from "node:crypto";
import type { PreviewRoute } from "@vivarium/contract/gateway";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import {
  deleteRoutesOfEnded,
  lastTableVersion,
  listRoutes,
  nextTableVersion,
  skipTableVersions,
} from "./store.ts";
import { toPreviewRoute } from "./table.ts";

interface PushDeps {
  db: Database;
  nodes: NodeClient;
  signals: SessionSignals;
  previewKey: Buffer;
  log: Log;
}

/** Moves that come together are told together. */
const GATHER_MS = 50;
const ATTEMPTS = 3;

export class PreviewPush {
  readonly #deps: PushDeps;
  /** What the node confirmed last to this process, and the version that it has since: 0 if it needed none. */
  #confirmed: { version: number; known: number; digest: string } | undefined;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(deps: PushDeps) {
    this.#deps = deps;
  }

  /** Resolves once the node confirmed all that was committed before this call. */
  ensure(): Promise<void> {
    this.#next ??= this.#after(this.#running ?? Promise.resolve());
    return this.#next;
  }

  /** Follows every move of a session until the returned function is called. */
  followMoves(): () => Promise<void> {
    const stop = this.#deps.signals.onAnyMove(() => {
      this.#timer ??= setTimeout(() => {
        this.#timer = undefined;
        this.ensure().catch((err: unknown) =>
          this.#deps.log.debug({ err }, "the sweep tells the node its routes"),
        );
      }, GATHER_MS);
    });
    return async () => {
      stop();
      clearTimeout(this.#timer);
      await Promise.allSettled([this.#running, this.#next]);
    };
  }

  /** Every tick: a node may have lost its routes with its disk, and other processes may have changed some. */
  async check(): Promise<void> {
    await deleteRoutesOfEnded(this.#deps.db);
    const confirmed = this.#confirmed;
    // What was confirmed meanwhile is later than what is compared here.
    if (confirmed && (await this.#knownVersion()) !== confirmed.known && this.#confirmed === confirmed)
      this.#confirmed = undefined;
    await this.ensure();
  }

  async #after(running: Promise<void>): Promise<void> {
    await running.catch(() => undefined);
    this.#running = this.#next;
    this.#next = undefined;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#push();
      } catch (error) {
        const isBehind = error instanceof NodeError && error.code === "network_conflict";
        if (!isBehind || attempt >= ATTEMPTS) throw error;
        await this.#overtake();
      }
    }
  }

  async #push(): Promise<void> {
    if (await this.#isToldAlready()) return;
    // Read again after the version is taken: a later version always tells at least what an earlier one did.
    const version = await nextTableVersion(this.#deps.db);
    const routes = await this.#routes();
    const isNone = routes.length === 0 && (await this.#knownVersion()) === 0;
    if (!isNone) await this.#deps.nodes.putPreviews({ version, routes });
    this.#confirmed = { version, known: isNone ? 0 : version, digest: digestOf(routes) };
  }

  /** Nobody here knows what a later version tells: another process may have read rows that were changed back since. */
  async #isToldAlready(): Promise<boolean> {
    const confirmed = this.#confirmed;
    if (!confirmed || digestOf(await this.#routes()) !== confirmed.digest) return false;
    const isLast = (await lastTableVersion(this.#deps.db)) === confirmed.version;
    // A tick may have found meanwhile that the node has lost it.
    return isLast && this.#confirmed === confirmed;
  }

  /** Another process was faster, or the database was set back. */
  async #overtake(): Promise<void> {
    await skipTableVersions(this.#deps.db, await this.#knownVersion());
    this.#confirmed = undefined;
  }

  /** Of the table that the node has; 0: none. */
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
