/**
 * A gateway that dies opens nothing (N-15): in namespaces of its own, with a canary every millisecond and the node's
 * own rules, and under a real machine. The world's counters decide.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { sleep } from "@vivarium/kit/clock";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { captureHello } from "../../packages/gateway/test-support/hello.ts";
import { nftIn } from "../../packages/node/src/host/netns.ts";
import { kernelPolicyOf } from "../../packages/node/src/network/kernel-policy.ts";
import { rulesetOf } from "../../packages/node/src/network/ruleset.ts";
import {
  GATEWAY_UID,
  NEVER_HERE,
  startTestNet,
  type TestNet,
} from "../../packages/node/test-support/test-net.ts";
import { eventually } from "../support/eventually.ts";
import { servicePid } from "../support/service.ts";
import { PUBLIC } from "../support/world/addresses.ts";
import { hex } from "../support/world/guest.ts";
import { addWorldTo } from "../support/world/namespace.ts";
import { type Network, startNetwork } from "../support/world/network.ts";
import { startWorld, type World } from "../support/world/world.ts";

const MINUTE_MS = 60_000 * SLOWNESS;
const DEATHS_IN_NAMESPACES = size({ ci: 10, full: 100 });
const DEATHS = size({ ci: 2, full: 100 });
const CHANGES = size({ ci: 2, full: 5 });
const PAUSES = size({ ci: 1, full: 3 });
const ALLOWED = "example.com";
const DENIED = "www.example.com";
const EGRESS = { mode: "deny" as const, allow: [ALLOWED] };
const ZONE = { [ALLOWED]: { a: [PUBLIC.allowed] }, [DENIED]: { a: [PUBLIC.denied] } };

/** Addresses other than the allowed one and our name server's, with the packets that arrived there. */
const forbiddenArrivals = ({ namespace }: World) =>
  namespace.counted().filter(({ address }) => address !== PUBLIC.allowed && address !== PUBLIC.resolver);

async function namesAsked(world: World): Promise<string[]> {
  const events = await world.take();
  return [...new Set(events.flatMap((event) => (event.kind === "dns" ? [event.name] : [])))];
}

describe("in namespaces", () => {
  const GATEWAY = fileURLToPath(new URL("../../packages/gateway/src/main.ts", import.meta.url));
  const CANARY = fileURLToPath(new URL("../support/world/canary.ts", import.meta.url));
  let net: TestNet;
  let world: World;
  let node: Server;
  let folder: string;
  let gateway: ChildProcess;
  let version = 0;

  /** The node's end of the link: sends whole tables on request, and confirms everything else. */
  const serve = (url: string, response: ServerResponse) => {
    if (url !== "/v1/tables") return void response.writeHead(204).end();
    const { hostAddress, machineAddress } = net.slot;
    const machine = { machine_id: "ses-1", session_id: "ses", generation: 1, egress: EGRESS };
    const slots = [{ host_address: hostAddress, machine_address: machineAddress, machine }];
    version++;
    const tables = { version, slots, routes: [], never: NEVER_HERE, resolvers: [PUBLIC.resolver] };
    response.writeHead(200).write(`${JSON.stringify(tables)}\n`);
  };

  function startGateway(): void {
    const as = ["setpriv", `--reuid=${GATEWAY_UID}`, `--regid=${GATEWAY_UID}`, "--clear-groups"];
    const argv = [`--net=/run/netns/${net.hostNs}`, ...as, process.execPath, "--no-warnings", GATEWAY];
    gateway = spawn("nsenter", argv, {
      env: {
        VIV_GATEWAY_SOCKET: join(folder, "node.sock"),
        VIV_GATEWAY_USER: "",
        VIV_INGRESS_LISTEN: "127.0.0.1:0",
        VIV_LOG_LEVEL: "error",
      },
      stdio: ["ignore", "ignore", "inherit"],
    });
  }

  const visit = (name: string) => net.guest.ask(PUBLIC.denied, 80, `GET / HTTP/1.1\r\nHost: ${name}\r\n\r\n`);
  const untilServing = () =>
    eventually(async () => expect(await visit(ALLOWED)).toContain(`hello from ${ALLOWED}`), 60_000, 20);

  beforeAll(async () => {
    net = await startTestNet((slot) => {
      const spec = { generation: 1, egress: EGRESS, exposed: [] };
      return rulesetOf({ ...slot, never: NEVER_HERE, closeSmtp: false }, kernelPolicyOf(spec), 1);
    });
    // The canary opens more flows than a guest may: every flow must be checked against the policy itself.
    await net.dropRules(net.slot.netns, "machine", "brakes", "limit rate over 200/second");
    await nftIn(net.hostNs, [
      "add",
      "element",
      "inet",
      "vivarium",
      "resolvers",
      `{ ${PUBLIC.resolver} . 53 }`,
    ]);
    world = await startWorld(() => addWorldTo(net.outsideNs, "out0"));
    await world.say(ZONE);
    folder = mkdtempSync(join(tmpdir(), "viv-kills-"));
    chmodSync(folder, 0o755);
    node = createServer((request, response) => serve(request.url ?? "", response));
    node.listen(join(folder, "node.sock"));
    await once(node, "listening");
    chmodSync(join(folder, "node.sock"), 0o666);
  });
  afterAll(async () => {
    gateway?.kill("SIGKILL");
    node?.closeAllConnections();
    node?.close();
    await world?.close();
    await net?.close();
    if (folder) rmSync(folder, { recursive: true });
  });

  test(`${DEATHS_IN_NAMESPACES} deaths let not one packet through`, { timeout: 9 * MINUTE_MS }, async () => {
    const hello = (await captureHello({ servername: DENIED })).toString("hex");
    const argv = [
      `--net=/run/netns/${net.guestNs}`,
      process.execPath,
      "--no-warnings",
      CANARY,
      DENIED,
      hello,
    ];
    const canary = spawn("nsenter", argv, { stdio: ["pipe", "pipe", "inherit"] });
    let tries = "";
    canary.stdout?.on("data", (chunk) => {
      tries += chunk;
    });
    for (let kill = 0; kill < DEATHS_IN_NAMESPACES; kill++) {
      startGateway();
      await untilServing();
      const died = once(gateway, "exit");
      gateway.kill("SIGKILL");
      await died;
      // A while without any gateway, and one between its listening and its first tables, are in every round.
      await sleep(kill % 50);
    }
    const ended = once(canary, "close");
    canary.stdin?.end();
    await ended;
    expect(forbiddenArrivals(world)).toEqual([]);
    expect(await namesAsked(world)).toEqual([ALLOWED]);
    expect(Number(tries)).toBeGreaterThan(100 * DEATHS_IN_NAMESPACES);
  });

  test("a canary that is allowed would be seen", async () => {
    const policy = kernelPolicyOf({ generation: 2, egress: { mode: "allow", allow: [] }, exposed: [] });
    const input = { ...net.slot, never: NEVER_HERE, closeSmtp: false };
    await nftIn(net.slot.netns, ["-f", "-"], rulesetOf(input, policy, 2));
    expect(await net.guest.ask(PUBLIC.denied, 9000, "direct")).toBe("direct");
    expect(await net.guest.udp(PUBLIC.denied, 443, "direct")).toBe("direct");
    expect(
      new Set(forbiddenArrivals(world).map(({ address, protocol }) => `${address} ${protocol}`)),
    ).toEqual(new Set([`${PUBLIC.denied} tcp`, `${PUBLIC.denied} udp`]));
  });
});

describe("under a real machine", () => {
  let network: Network;
  beforeAll(async () => {
    network = await startNetwork();
    await network.world.say(ZONE);
  });
  afterAll(() => network?.close());

  const CANARY = `
import os, socket, time
def dial(port, text):
    peer = socket.socket(); peer.settimeout(0.3)
    try: peer.connect(("${PUBLIC.denied}", port)); peer.sendall(text); peer.recv(100)
    except OSError: pass
    peer.close()
asker = socket.socket(type=socket.SOCK_DGRAM)
question = b"\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3www\\7example\\3com\\0\\0\\1\\0\\1"
count = 0
while True:
    for work in (
        lambda: dial(80, b"GET / HTTP/1.1\\r\\nHost: ${DENIED}\\r\\n\\r\\n"),
        lambda: dial(9000, b"direct"),
        lambda: dial(443, b"anything"),
        lambda: asker.sendto(question, ("10.200.0.1", 53)),
        lambda: asker.sendto(b"direct", ("${PUBLIC.denied}", 443)),
    ):
        try: work()
        except OSError: pass
        count += 1
        open("/workspace/tries.new", "w").write(str(count))
        os.rename("/workspace/tries.new", "/workspace/tries")
`;

  test(`${DEATHS} deaths of the gateway, changes of policy, pauses and wakes let nothing through`, {
    timeout: size({ ci: 9, full: 60 }) * MINUTE_MS,
  }, async () => {
    const { world, facts, client } = network;
    const guest = await network.guest({ egress: EGRESS });
    const reach = async () => {
      const visit = await guest.one({
        ...{ op: "tcp", host: PUBLIC.allowed, port: 80 },
        chunks: [hex(`GET / HTTP/1.1\r\nHost: ${ALLOWED}\r\n\r\n`)],
      });
      expect(visit.got).toContain(`hello from ${ALLOWED}`);
    };
    await world.forget();
    await client.session(guest.id).files.write("canary.py", CANARY);
    await guest.start("canary", "exec python3 /workspace/canary.py");
    for (let round = 0; round < DEATHS; round++) {
      process.kill(servicePid(facts, "gateway"), "SIGKILL");
      await eventually(reach, 60_000);
    }
    for (let round = 0; round < CHANGES; round++) {
      await network.allow(guest, "deny", []);
      await network.allow(guest, "deny", EGRESS.allow);
      await reach();
    }
    for (let round = 0; round < PAUSES; round++) {
      await client.sessions.pause(guest.id);
      await client.sessions.resume(guest.id);
      await reach();
    }
    const before = Number(await guest.run("cat /workspace/tries"));
    expect(before).toBeGreaterThan(50);
    await eventually(async () =>
      expect(Number(await guest.run("cat /workspace/tries"))).toBeGreaterThan(before),
    );
    expect(forbiddenArrivals(world)).toEqual([]);
    expect(await namesAsked(world)).toEqual([ALLOWED]);
    await network.allow(guest, "allow");
    await eventually(() => expect(forbiddenArrivals(world)).not.toEqual([]));
  });
});
