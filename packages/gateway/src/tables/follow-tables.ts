/**
 * Reads the node's endless stream of tables, puts the newest in force and confirms them. While the node cannot be
 * reached, the last tables stay in force.
 */
import { GatewayTables } from "@vivarium/contract/gateway";
import { Coalesced } from "@vivarium/kit/coalesced";
import type { Log } from "@vivarium/kit/log";
import type { CurrentTables } from "./current-tables.ts";
import { followLines, type LineReader } from "./follow-lines.ts";
import type { NodeClient } from "./node-client.ts";

export interface FollowDeps {
  node: NodeClient;
  tables: CurrentTables;
  /** Resolves once every connection that the tables in force do not allow is closed. */
  settled: () => Promise<unknown>;
  log: Log;
}

/** Reconnects until the signal aborts. */
export async function followTables(deps: FollowDeps, signal: AbortSignal): Promise<void> {
  const { node, log } = deps;
  const begin = (reopen: (error: Error) => void) => readTables(deps, reopen);
  await followLines({ socketPath: node.socketPath, path: "/v1/tables", name: "tables", log, begin }, signal);
}

function readTables(deps: FollowDeps, reopen: (error: Error) => void): LineReader {
  deps.tables.forgetPins();
  let newest = "";
  // While tables are being applied only the newest line is kept: older tables are skipped.
  const applying = new Coalesced(async () => {
    const version = await putInForce(deps, newest);
    // The node waits for a confirmation that failed. Reopening the stream makes it send its tables again.
    if (version !== undefined) await confirm(deps, version).catch(reopen);
  });
  return {
    async take(line) {
      newest = line;
      void applying.run();
    },
    idle: () => applying.idle(),
  };
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
