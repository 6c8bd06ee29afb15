/**
 * Reads the node's endless stream of Connections, applies its lines in order and confirms them. While the node cannot be
 * reached the last ones are kept; the lease bounds how long they are used. Hazard: lines carry credentials, so nothing of
 * a line may be logged, also not the text of an error about it.
 */
import { ConnectionLine } from "@vivarium/contract/gateway";
import { Coalesced } from "@vivarium/kit/coalesced";
import type { Log } from "@vivarium/kit/log";
import { followLines, type LineReader } from "../tables/follow-lines.ts";
import type { NodeClient } from "../tables/node-client.ts";
import type { BoundConnections } from "./bound-connections.ts";

/** Time after which the node sends everything anew because a line could not be read. */
const ANEW_MS = 5_000;

export interface FollowDeps {
  node: NodeClient;
  bound: Pick<BoundConnections, "set" | "drop" | "keepOnly" | "renewLease">;
  log: Log;
}

/** Reconnects until the signal aborts. */
export async function followConnections(deps: FollowDeps, signal: AbortSignal): Promise<void> {
  const { node, log } = deps;
  const begin = (reopen: (error: Error) => void) => new ConnectionReader(deps, reopen);
  await followLines(
    { socketPath: node.socketPath, path: "/v1/connections", name: "Connections", log, begin },
    signal,
  );
}

class ConnectionReader implements LineReader {
  readonly #deps: FollowDeps;
  readonly #reopen: (error: Error) => void;
  /** Number of the newest line whose effects are complete. */
  #applied = 0;
  readonly #confirming = new Coalesced(() => this.#confirm());
  /** Set once a line could not be read. A confirmation of a later line would confirm that one too. */
  #anew: NodeJS.Timeout | undefined;

  constructor(deps: FollowDeps, reopen: (error: Error) => void) {
    this.#deps = deps;
    this.#reopen = reopen;
  }

  async take(text: string): Promise<void> {
    const line = read(text);
    if (!line) return this.#noteUnreadable();
    await this.#apply(line);
    if (line.type === "lease" || this.#anew) return;
    this.#applied = line.seq;
    void this.#confirming.run();
  }

  async idle(): Promise<void> {
    clearTimeout(this.#anew);
    await this.#confirming.idle();
  }

  async #apply(line: ConnectionLine): Promise<void> {
    const { bound, log } = this.#deps;
    if (line.type === "lease") return bound.renewLease(line.age_ms);
    if (line.type === "only") return await bound.keepOnly(new Set(line.session_ids));
    const { session_id } = line.session;
    try {
      await bound.set(line.session);
    } catch {
      log.error({ session: session_id }, "a session's Connections cannot be used; the session has none");
      await bound.drop(session_id);
    }
  }

  #noteUnreadable(): void {
    this.#deps.log.error("a line of Connections cannot be read; neither it nor a later one is confirmed");
    this.#anew ??= setTimeout(() => this.#reopen(new Error("a line could not be read")), ANEW_MS);
  }

  /** The node waits for a confirmation that failed. Reopening the stream makes it send everything again. */
  async #confirm(): Promise<void> {
    const seq = this.#applied;
    const { status } = await this.#deps.node
      .post("/v1/connections/applied", { seq })
      .catch(() => ({ status: undefined }));
    if (status !== 204) this.#reopen(new Error(`the confirmation of line ${seq} failed: ${status}`));
  }
}

/** Undefined if the line does not fit the contract. */
function read(text: string): ConnectionLine | undefined {
  try {
    return ConnectionLine.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
