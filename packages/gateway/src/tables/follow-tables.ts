/**
 * Reads the node's endless stream of tables, puts the newest in force and confirms them. While the node cannot be
 * reached, the last tables stay in force.
 */
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { GatewayTables } from "@vivarium/contract/gateway";
import { sleep } from "@vivarium/kit/clock";
import { Coalesced } from "@vivarium/kit/coalesced";
import type { Log } from "@vivarium/kit/log";
import type { CurrentTables } from "./current-tables.ts";
import type { NodeClient } from "./node-client.ts";
import { readLines } from "./read-lines.ts";

/** A stream without a byte for this long counts as broken: the node sends a heartbeat every 5 s. */
const SILENCE_MS = 15_000;
const RECONNECT_MS = 200;
const MAX_LINE_BYTES = 64 * 1024 * 1024;

export interface FollowDeps {
  node: NodeClient;
  tables: CurrentTables;
  /** Resolves once every connection that the tables in force do not allow is closed. */
  settled: () => Promise<unknown>;
  log: Log;
}

/** Reconnects until the signal aborts. */
export async function followTables(deps: FollowDeps, signal: AbortSignal): Promise<void> {
  let isKnownAway = false;
  while (!signal.aborted) {
    try {
      await followOnce(deps, signal, () => {
        isKnownAway = false;
      });
    } catch (error) {
      if (!signal.aborted && !isKnownAway) deps.log.warn({ err: error }, "the node does not send tables");
      isKnownAway = true;
    }
    await sleep(RECONNECT_MS, signal);
  }
}

async function followOnce(deps: FollowDeps, signal: AbortSignal, onConnected: () => void): Promise<void> {
  const stream = await openStream(deps.node.socketPath, signal);
  onConnected();
  deps.tables.forgetPins();
  let newest = "";
  // While tables are being applied only the newest line is kept: older tables are skipped.
  const applying = new Coalesced(async () => {
    const version = await putInForce(deps, newest);
    // The node waits for a confirmation that failed. Closing the stream makes it send its tables again.
    if (version !== undefined) await confirm(deps, version).catch((error) => stream.destroy(error));
  });
  try {
    for await (const line of readLines(stream, MAX_LINE_BYTES)) {
      if (line.trim() === "") continue;
      newest = line;
      void applying.run();
    }
    throw new Error("the node ended the stream of tables");
  } finally {
    stream.destroy();
    await applying.idle();
  }
}

async function openStream(socketPath: string, signal: AbortSignal): Promise<IncomingMessage> {
  const call = request({ socketPath, path: "/v1/tables", signal, agent: false });
  call.setTimeout(SILENCE_MS, () =>
    call.destroy(new Error(`the node was silent for ${SILENCE_MS / 1000} s`)),
  );
  call.end();
  const [response] = (await once(call, "response")) as [IncomingMessage];
  if (response.statusCode === 200) return response;
  call.destroy();
  throw new Error(`the node answered ${response.statusCode} instead of tables`);
}

/** Resolves to the version to confirm; undefined when the tables could not be put in force. */
async function putInForce({ tables, settled, log }: FollowDeps, line: string): Promise<number | undefined> {
  try {
    const sent = GatewayTables.parse(JSON.parse(line));
    tables.replace(sent);
    await settled();
    return sent.version;
  } catch (error) {
    log.error({ err: error }, "tables are not in force and not confirmed");
    return undefined;
  }
}

async function confirm({ node }: FollowDeps, version: number): Promise<void> {
  const { status } = await node.post("/v1/applied", { version });
  if (status !== 204) throw new Error(`the node answered ${status} to the confirmation of ${version}`);
}
