/**
 * Rows about the network that need no machine: set-up of namespaces, the cost of one, and the ways out and in with a
 * namespace in the guest's place. Run by network-rows.ts in namespaces of its own; writes the rows to a file.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { randomId } from "@vivarium/kit/id";
import type { Slot } from "../../packages/node/src/host/slots.ts";
import { eventually } from "../support/eventually.ts";
import { TapNamespace } from "../support/machine-by-hand.ts";
import { INGRESS_PORT, type NetworkLab, startNetworkLab } from "../support/network-lab.ts";
import { PUBLIC } from "../support/world/addresses.ts";
import { DENY, type NetworkPath, pathRows } from "./network-paths.ts";
import { bridgeTo, type Outside, putGuestInSlot, putGuestNamespace, startOutside } from "./outside.ts";
import { APP, APP_PORT, previewRows } from "./preview-paths.ts";
import type { Row } from "./samples.ts";
import { memoryRows, setUpRows } from "./slot-rows.ts";

const SLOTS = 2048;
const WHERE = "no machine: ";
/** A port of a bridge must not have the address of what is behind the bridge. */
const BRIDGED_MAC = "02:00:00:00:01:01";

const { values } = parseArgs({ options: { out: { type: "string" }, effort: { type: "string" } } });
/** As in network-rows.ts. */
export interface SlotEffort {
  setUps: number;
  held: number;
  paths: { rounds: number; connections: number; mib: number };
  previews: { rounds: number; requests: number; mib: number };
}

async function allRows(effort: SlotEffort): Promise<Row[]> {
  const outside = await startOutside();
  const lab = await startNetworkLab({ slots: SLOTS, resolver: PUBLIC.resolver });
  try {
    const allow = await guestSlot(lab, "allow");
    const deny = await guestSlot(lab, "deny");
    const paths = [await bareGuest(outside), allow.path, deny.path];
    return [
      ...(await setUpRows(lab, effort.setUps)),
      ...(await memoryRows(lab, effort.held)),
      ...(await pathRows(WHERE, paths, effort.paths)),
      ...(await previewsOf(lab, deny, effort)),
    ];
  } finally {
    await lab.close();
    await outside.close();
  }
}

interface GuestSlot {
  slot: Slot;
  sessionId: string;
  path: NetworkPath;
  netns: string;
}

async function guestSlot({ pool, network }: NetworkLab, mode: "allow" | "deny"): Promise<GuestSlot> {
  const slot = await pool.take(mode);
  const sessionId = randomId(21);
  const egress = mode === "deny" ? DENY : { mode, allow: [] };
  await network.networks.assign(slot, `${sessionId}-1`, { generation: 1, egress, exposed: [APP_PORT] });
  await network.networks.known(slot, 10_000);
  const netns = `guest-${mode}`;
  await putGuestInSlot(slot.netns, netns);
  const name = mode === "deny" ? "gateway (deny)" : "NAT (allow)";
  return { slot, sessionId, netns, path: pathFrom(netns, name) };
}

async function bareGuest(outside: Outside): Promise<NetworkPath> {
  const { name } = await TapNamespace.make("bare");
  await putGuestNamespace(name, "guest-bare", BRIDGED_MAC);
  await bridgeTo(outside, name);
  return pathFrom("guest-bare", "bare bridge");
}

function pathFrom(netns: string, name: string): NetworkPath {
  return {
    name,
    run: async ([program = "", ...args]) => {
      const child = spawn("nsenter", [`--net=/run/netns/${netns}`, program, ...args], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      const chunks = await Array.fromAsync(child.stdout);
      return Buffer.concat(chunks).toString();
    },
  };
}

async function previewsOf(lab: NetworkLab, guest: GuestSlot, effort: SlotEffort): Promise<Row[]> {
  const route = {
    ...{ session_id: guest.sessionId, port: APP_PORT, version: 1, visibility: "public" as const },
    ...{ cookie_key: "00".repeat(32), wake_on_http: false, state: "live" as const },
  };
  const { previews, link } = lab.network;
  await previews.replace(link, { version: 1, routes: [route] });
  const app = spawn("nsenter", [`--net=/run/netns/${guest.netns}`, "python3", "-c", APP], {
    stdio: "inherit",
  });
  try {
    const listening = () =>
      execFileSync("nsenter", [`--net=/run/netns/${guest.netns}`, "python3", "-c", CONNECTS], {
        stdio: "pipe",
      });
    await eventually(listening);
    const preview = {
      ...{ host: "127.0.0.1", port: INGRESS_PORT },
      name: `${APP_PORT}-${guest.sessionId}.localhost:${INGRESS_PORT}`,
    };
    const direct = { host: guest.slot.machineAddress, port: APP_PORT };
    return await previewRows(WHERE, { direct, preview }, effort.previews);
  } finally {
    app.kill();
    await once(app, "exit");
  }
}

const CONNECTS = `import socket; socket.create_connection(("127.0.0.1", ${APP_PORT}), 1)`;

writeFileSync(values.out ?? "/dev/stdout", JSON.stringify(await allRows(JSON.parse(values.effort ?? "{}"))));
// Programs that it has started end with its namespaces.
process.exit();
