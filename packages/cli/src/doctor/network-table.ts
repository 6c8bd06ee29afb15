/**
 * Checks that the nft table of machines exists while the service runs. Another firewall that flushes the whole ruleset,
 * as `nft -f /etc/nftables.conf` does, removes it. The node daemon puts it back within seconds, unless it cannot.
 */
import { runHostCommand } from "@vivarium/kit/host-command";
import { layoutOf } from "../supervisor/layout.ts";
import { findService } from "../supervisor/lock.ts";
import { type Finding, ok, warn } from "./finding.ts";

const NAME = "network table";
const TABLE = ["inet", "vivarium"];

export async function checkNetworkTable(dataDir: string): Promise<Finding> {
  const holder = await findService(layoutOf(dataDir).lockFile);
  const listed = await runHostCommand("nft", ["-t", "list", "table", ...TABLE]);
  return judgeNetworkTable({ isServing: holder !== undefined, isMissing: isMissing(listed) });
}

/** Whether nft says that the table does not exist. Another failure, as without root, says nothing of the table. */
export function isMissing({ code, stderr }: { code: number; stderr: string }): boolean {
  return code !== 0 && /No such file/i.test(stderr);
}

export function judgeNetworkTable({
  isServing,
  isMissing,
}: {
  isServing: boolean;
  isMissing: boolean;
}): Finding {
  const name = TABLE.join(" ");
  if (!isMissing) return ok(NAME, isServing ? `${name} is in place` : "not looked at: no service runs here");
  if (!isServing) return ok(NAME, `no ${name}: the service makes it at its start`);
  return warn(
    NAME,
    `no ${name}, although the service runs: another firewall has flushed the ruleset`,
    "sessions reach nothing directly, as in mode allow, and the host's own rules for them are gone",
    "The node daemon puts it back within ten seconds, and writes to its log why it cannot (log/node.log in the data directory). Load that firewall before the service, or without its flush.",
  );
}
