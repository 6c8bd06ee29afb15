/**
 * Starts and stops services in this program's network as node and supervisor do. Steps: `a:start`, `a:stop`,
 * `set:VALUE` as another program would, `die` as by SIGKILL. Prints `net.ipv4.ip_forward` after each.
 */
import { readFile, writeFile } from "node:fs/promises";
import { holdNetworkTable } from "../../packages/cli/src/supervisor/network-table.ts";
import { prepareHostNetwork, readHostNetwork } from "../../packages/node/src/host/host-network.ts";

const FORWARDING = "/proc/sys/net/ipv4/ip_forward";
const stops = new Map<string, () => Promise<void>>();

for (const step of process.argv.slice(2)) {
  const [what = "", how = ""] = step.split(":");
  if (what === "set") await writeFile(FORWARDING, how);
  else if (what === "die") process.kill(process.pid, "SIGKILL");
  else if (how === "start") {
    stops.set(what, await holdNetworkTable(`http://${what}`));
    await prepareHostNetwork(await readHostNetwork(), undefined);
  } else await stops.get(what)?.();
  process.stdout.write((await readFile(FORWARDING, "utf8")).trim());
}
