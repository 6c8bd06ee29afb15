/**
 * Puts the host's nft table and its forwarding back while the daemon runs. A firewall that starts flushes the tables of
 * all programs, and a reload of sysctl settings may switch forwarding off.
 */
import { changesIn, type HostSettingChange } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import { messageOf } from "@vivarium/kit/unknown-error";
import { type HostNetwork, isForwarding, noteOf, prepareHostNetwork } from "./host-network.ts";
import { run } from "./run.ts";

const CHECK_MS = 10_000;

interface KeepDeps {
  host: HostNetwork;
  gatewayUid: number | undefined;
  /** Settings that nodes had changed before: their records go with the table. */
  changes: readonly HostSettingChange[];
  log: Pick<Log, "warn" | "error">;
  checkMs?: number;
}

export async function keepHostNetwork(
  { host, gatewayUid, changes, log, checkMs = CHECK_MS }: KeepDeps,
  until: AbortSignal,
): Promise<void> {
  let known = changes;
  while (!until.aborted) {
    await sleep(checkMs, until);
    if (until.aborted) return;
    try {
      const table = await listTable();
      const lack = await findLack(table, noteOf(host, gatewayUid));
      const recorded = changesIn(table);
      if (lack === undefined) {
        known = recorded;
        continue;
      }
      await prepareHostNetwork(host, gatewayUid, { changes: [...known, ...recorded] });
      log.warn(`${lack}; sessions had no network of their own meanwhile. It is put back`);
    } catch (err) {
      log.error({ err }, "the host's nft table or its forwarding is not in force; it is tried again");
    }
  }
}

/** The part that another program took away, as a sentence; undefined if nothing lacks. */
async function findLack(table: string, note: string): Promise<string | undefined> {
  if (!(await isForwarding())) return "net.ipv4.ip_forward was switched off";
  // Another service of this host may have put back only what is its own.
  if (table.includes("masquerade") && table.includes(note)) return undefined;
  return "another program has removed the nft table inet vivarium, or rules in it";
}

async function listTable(): Promise<string> {
  return await run("nft", ["-t", "list", "table", "inet", "vivarium"]).catch((error: unknown) => {
    if (/No such file/.test(messageOf(error))) return "";
    throw error;
  });
}
