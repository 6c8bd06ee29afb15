/**
 * A gateway in a process of its own, with one machine whose session has a Connection to the origin, and one that reaches the
 * origin unread. Reads settings from its first argument, prints where it listens, and then answers each number on its
 * standard input with the memory that it takes once so many sessions have Connections.
 */
import { createInterface } from "node:readline";
import { createSecureContext } from "node:tls";
import { makeAuthority } from "@vivarium/kit/certificates";
import { createLog } from "@vivarium/kit/log";
import { connection } from "../../packages/gateway/test-support/bound-world.ts";
import { a, deny, startWorld } from "../../packages/gateway/test-support/world.ts";

export interface GatewaySettings {
  prefix: string;
  host: string;
  originPort: number;
  /** Certificate of the authority that signed the origin's. */
  roots: string;
}

export interface GatewayFacts {
  /** Addresses of the two machines' slots. */
  bound: string;
  unread: string;
  /** The authority of the session with the Connection. */
  ca: string;
}

/** Connections of each session that is counted for its memory. */
const EACH = 10;
const LEASE_MS = 5_000;

const { prefix, host, originPort, roots } = JSON.parse(process.argv[2] ?? "") as GatewaySettings;
const outside = { http: originPort, tls: originPort };
const interceptor = { roots: createSecureContext({ ca: roots }) };
const world = await startWorld(prefix, outside, createLog("bench", "silent"), { interceptor });
world.names.script = (name) => [a(name, `${prefix}.80`)];
await world.apply({ first: deny(host), second: deny(host) });
const notAfter = new Date(Date.now() + 24 * 3_600_000);
const authority = await makeAuthority({ name: "session", notAfter });
const ca = { certificate_pem: authority.certificatePem, key_pem: authority.keyPem };
world.bound.renewLease();
setInterval(() => world.bound.renewLease(), LEASE_MS);
await world.bound.set({
  ...{ session_id: "ses_1", version: 1, ca, tombstones: [] },
  connections: [connection({ host, paths: ["/*"] })],
});
const facts: GatewayFacts = { bound: world.hosts[0], unread: world.hosts[1], ca: ca.certificate_pem };
process.stdout.write(`${JSON.stringify(facts)}\n`);

let sessions = 0;
for await (const line of createInterface({ input: process.stdin })) {
  for (; sessions < Number(line); sessions++) {
    const connections = Array.from({ length: EACH }, (_, n) =>
      connection({ name: `c${n}`, host: `c${n}.example` }),
    );
    const session_id = `memory_${sessions}`;
    await world.bound.set({ session_id, version: 1, ca: { ...ca }, connections, tombstones: [] });
  }
  globalThis.gc?.();
  process.stdout.write(`${process.memoryUsage().rss}\n`);
}
process.exit(0);
