/**
 * Starts and stops services in this program's network as node and supervisor do. Steps: `a:start`, `a:keep` as a node
 * that runs on, `a:stop`; `die` as by SIGKILL; `uninstall` of what is left; as other programs do: `set:VALUE`, `flush` of all rules, `other` of another
 * service, which is the first to put back what is its own after a flush; `wait:VALUE` until forwarding has this value and
 * the rules are there; `count` of the bytes of flows, as the node does. Prints `net.ipv4.ip_forward` after each; `counts` prints
 * whether the bytes are counted.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { removeHostTable } from "../../packages/cli/src/supervisor/host-settings.ts";
import { registerService } from "../../packages/cli/src/supervisor/registered-services.ts";
import { countBytesOfFlows } from "../../packages/node/src/host/conntrack.ts";
import {
  noteOf,
  prepareHostNetwork,
  readHostChanges,
  readHostNetwork,
} from "../../packages/node/src/host/host-network.ts";
import { keepHostNetwork } from "../../packages/node/src/host/keep-host-network.ts";
import { eventually } from "./eventually.ts";

const FORWARDING = "/proc/sys/net/ipv4/ip_forward";
const COUNTS = "/proc/sys/net/netfilter/nf_conntrack_acct";
const TABLE = ["inet", "vivarium"];
const stops = new Map<string, () => Promise<void>>();
const keeping = new AbortController();
let kept: Promise<void> | undefined;
const log = { warn: () => {}, error: () => {} };

for (const step of process.argv.slice(2)) {
  const [what = "", how = ""] = step.split(":");
  if (what === "set") writeFileSync(FORWARDING, how);
  else if (what === "die") process.kill(process.pid, "SIGKILL");
  else if (what === "flush") execFileSync("nft", ["flush", "ruleset"]);
  else if (what === "other") await flushAndBeOther();
  else if (what === "count") await countBytesOfFlows();
  else if (what === "counts") {
    process.stdout.write(` ${readFileSync(COUNTS, "utf8").trim()} `);
    continue;
  } else if (what === "uninstall") await removeHostTable();
  else if (what === "wait") await untilInForce(how);
  else if (how === "keep") await keep();
  else if (how === "start") {
    stops.set(what, await registerService(`http://${what}`));
    await prepareHostNetwork(await readHostNetwork(), undefined);
  } else {
    // A node has ended before its service takes away what all share.
    keeping.abort();
    await kept;
    await stops.get(what)?.();
  }
  process.stdout.write(readFileSync(FORWARDING, "utf8").trim());
}
keeping.abort();

async function keep(): Promise<void> {
  const host = await readHostNetwork();
  const changes = await readHostChanges();
  kept = keepHostNetwork({ host, gatewayUid: undefined, changes, log, checkMs: 20 }, keeping.signal);
}

/** The node of another service, whose gateway has another user, is the first to notice. */
async function flushAndBeOther(): Promise<void> {
  execFileSync("nft", ["flush", "ruleset"]);
  await prepareHostNetwork(await readHostNetwork(), 4242);
}

async function untilInForce(forwarding: string): Promise<void> {
  const note = noteOf(await readHostNetwork(), undefined);
  await eventually(() => {
    for (const chain of ["postrouting", note])
      execFileSync("nft", ["list", "chain", ...TABLE, chain], { stdio: "pipe" });
    const found = readFileSync(FORWARDING, "utf8").trim();
    if (found !== forwarding) throw new Error(`net.ipv4.ip_forward is ${found}`);
  });
}
