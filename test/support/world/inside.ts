/**
 * Runs the world's servers inside its namespace. Calls arrive as JSON lines on standard input, {id, op, …}; answers are
 * {id, result}. Ends with its input.
 */
import { createInterface } from "node:readline";
import { ALL, PORTS } from "./addresses.ts";
import { listenDns } from "./dns-server.ts";
import { WorldLog } from "./events.ts";
import { Connections, echo, listenTcp, sendEndlessly, swallow } from "./tcp-servers.ts";
import { listenUdp } from "./udp-servers.ts";
import { listenWeb } from "./web-servers.ts";
import { ZoneReader } from "./zone.ts";

const [certFile = "", keyFile = "", folder = ""] = process.argv.slice(2);
const log = new WorldLog();
const zone = new ZoneReader();
const connections = new Connections(log);

/** Lets the servers read what the kernel has received for them. */
const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

const OPERATIONS: Record<string, (argument: never) => unknown> = {
  zone: (wanted: never) => zone.set(wanted),
  /** Everything that was sent to the world before the call is in its log. */
  take: async () => {
    for (let turns = 0; turns < 3; turns++) await turn();
    return log.take();
  },
  open: () => connections.list(),
  hangUp: () => connections.hangUp(),
};

for (const host of ALL) {
  await listenDns({ zone, log }, host);
  for (const port of PORTS.udp) await listenUdp(log, host, port);
}
await listenWeb({ log, folder }, connections, { certFile, keyFile });
for (const port of PORTS.echo) await listenTcp(connections, port, echo);
await listenTcp(connections, PORTS.sink, swallow);
await listenTcp(connections, PORTS.source, sendEndlessly);

const say = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`);
const orders = createInterface({ input: process.stdin });
orders.on("line", async (line) => {
  const { id, op, argument } = JSON.parse(line);
  say({ id, result: (await OPERATIONS[op]?.(argument as never)) ?? null });
});
orders.once("close", () => process.exit(0));
say({ id: 0, result: "ready" });
