/** Machines that come and go leave nothing in the network of this host; without machines: test/chaos/network-slots.ts. */
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { slotNumbers } from "../support/machine-traces.ts";
import { servicePid } from "../support/service.ts";
import { PUBLIC } from "../support/world/addresses.ts";
import { type Network, startNetwork } from "../support/world/network.ts";

const MINUTE_MS = 60_000;
/** The number of descriptors varies a little; a leak would be one for each machine, or more. */
const BREATH = 15;
const MACHINES = size({ ci: 6, full: 500 });
const AT_ONCE = 2;

let network: Network;
beforeAll(async () => {
  network = await startNetwork();
});
afterAll(() => network?.close());

/** Resources of this service alone: others may run on this host. */
function traces() {
  const slots = slotNumbers(network.facts.dataDir);
  const links = execFileSync("ip", ["-o", "link"], { encoding: "utf8" });
  const namespaces = readdirSync("/run/netns");
  const flows = slots.map((slot) => connectionsOf(slot));
  return {
    slots: slots.length,
    namespaces: slots.filter((slot) => namespaces.includes(`viv-${slot}`)).length,
    links: slots.filter((slot) => links.includes(` viv${slot}@`)).length,
    flows: flows.reduce((sum, some) => sum + some, 0),
    rules: execFileSync("nft", ["list", "table", "inet", "vivarium"], { encoding: "utf8" }).split("\n")
      .length,
  };
}

function connectionsOf(slot: number): number {
  const offset = slot * 2 + 1;
  const address = `10.220.${offset >> 8}.${offset & 255}`;
  const list = (side: string) =>
    execFileSync("conntrack", ["-L", side, address], { encoding: "utf8", stdio: "pipe" });
  return [list("--orig-src"), list("--orig-dst")].join("").split("\n").filter(Boolean).length;
}

const descriptors = () =>
  (["node", "gateway", "control"] as const).map(
    (process) => readdirSync(`/proc/${servicePid(network.facts, process)}/fd`).length,
  );

async function live(number: number): Promise<void> {
  const mode = number % 2 ? "deny" : "allow";
  const { client } = network;
  const { session_id: id } = await client.sessions.create({
    egress: { mode, allow: [`${PUBLIC.bulk}:9000`] },
  });
  await client.sessions.waitUntilLive(id);
  const talk = `import socket; p = socket.create_connection(("${PUBLIC.bulk}", 9000)); p.sendall(b"x"); print(p.recv(1))`;
  const { stdout } = await client.sessions.exec(id, {
    command: ["python3", "-c", talk],
    timeout_ms: MINUTE_MS,
  });
  expect(stdout).toContain("x");
  await network.ask(`/v1/sessions/${id}/expose`, { body: { port: 3000 } });
  await client.sessions.delete(id);
}

async function many(count: number): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) await live(next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

test(`${MACHINES} machines leave no namespace, link, rule, connection or descriptor`, {
  timeout: size({ ci: 6, full: 180 }) * MINUTE_MS * SLOWNESS,
}, async () => {
  await many(AT_ONCE);
  const ready = await eventually(() => {
    const now = traces();
    expect([now.slots, now.namespaces, now.links]).toEqual([5, 5, 5]);
    return now;
  }, MINUTE_MS);
  const open = descriptors();
  await many(MACHINES);
  await eventually(() => expect(traces()).toEqual({ ...ready, flows: 0 }), MINUTE_MS);
  await eventually(() => {
    descriptors().forEach((now, at) => {
      expect(now).toBeLessThanOrEqual((open[at] ?? 0) + BREATH);
    });
  }, MINUTE_MS);
});
