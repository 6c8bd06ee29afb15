/** A world for the benchmarks, and the bare way to it that is the floor of the network's rows. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { GATEWAY_ADDRESS, GUEST_ADDRESS } from "../../packages/node/src/host/netns.ts";
import { run } from "../../packages/node/src/host/run.ts";
import { GUEST_MAC, TAP_NAME } from "../../packages/node/src/qemu/arguments.ts";
import { createWorldNamespace } from "../support/world/namespace.ts";

const SERVER = fileURLToPath(new URL("./outside-server.ts", import.meta.url));
/** The address at which guests see the other end of their link. */
const GATEWAY_MAC = "02:00:00:00:00:01";

export interface Outside {
  /** Its namespace, joined to this one. */
  netns: string;
  close(): Promise<void>;
}

export async function startOutside(): Promise<Outside> {
  const namespace = createWorldNamespace();
  const argv = [`--net=/run/netns/${namespace.name}`, process.execPath, "--no-warnings", SERVER];
  const server = spawn("nsenter", argv, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(server, "exit");
  const close = async () => {
    server.stdin.end();
    await ended;
    await namespace.remove();
  };
  const said = await Promise.race([once(server.stdout, "data"), ended.then(() => undefined)]);
  if (said) return { netns: namespace.name, close };
  await close();
  throw new Error("the benchmarks' servers did not start");
}

/** A bridge with the tap of this namespace and a link to the outside: no rule, no NAT, no forwarding in between. */
export async function bridgeTo(outside: Outside, netns: string): Promise<void> {
  await inNetns(netns, [
    "link add br0 type bridge",
    `link add far0 type veth peer name bare0 netns ${outside.netns}`,
    `link set ${TAP_NAME} master br0`,
    "link set far0 master br0",
    ...["br0", "far0", TAP_NAME].map((link) => `link set ${link} up`),
  ]);
  await inNetns(outside.netns, [
    `link set bare0 address ${GATEWAY_MAC} up`,
    `addr add ${GATEWAY_ADDRESS}/30 dev bare0`,
  ]);
}

/** A namespace in place of a guest, behind a link that has the name of the tap. */
export async function putGuestNamespace(netns: string, guest: string, tapMac: string): Promise<void> {
  await run("ip", ["netns", "add", guest]);
  await inNetns(netns, [
    `link del ${TAP_NAME}`,
    `link add ${TAP_NAME} address ${tapMac} type veth peer name eth0 netns ${guest}`,
    `link set ${TAP_NAME} up`,
  ]);
  await inNetns(guest, [
    "link set lo up",
    `link set eth0 address ${GUEST_MAC} up`,
    `addr add ${GUEST_ADDRESS}/30 dev eth0`,
    `route add default via ${GATEWAY_ADDRESS}`,
  ]);
}

/** A namespace in place of a guest, inside a slot, whose end of the link has an address. */
export async function putGuestInSlot(netns: string, guest: string): Promise<void> {
  await putGuestNamespace(netns, guest, GATEWAY_MAC);
  await inNetns(netns, [`addr add ${GATEWAY_ADDRESS}/30 dev ${TAP_NAME}`]);
}

async function inNetns(netns: string, lines: string[]): Promise<void> {
  await run("ip", ["-netns", netns, "-batch", "-"], { input: lines.join("\n") });
}
