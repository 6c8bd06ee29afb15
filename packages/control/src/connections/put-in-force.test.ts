/** The first lease for the node's gateway, before the first sweep. */
import type { ConnectionsKept, SessionConnections } from "@vivarium/contract/node";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { openDatabase } from "../db/pool.ts";
import { NodeClient } from "../fleet/node-client.ts";
import { Keyring } from "../secrets/keyring.ts";
import { keepLease } from "./keep-lease.ts";
import { putInForce } from "./put-in-force.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl({ sweeps: false });
});
afterAll(() => control.close());

const CONNECTION = {
  name: "api",
  origin: "https://api.example.com",
  authentication: { type: "bearer", secret: "sk-live" },
  allow: { methods: ["GET"], paths: ["/*"] },
};

test("a node without a lease gets one before a session with a Connection is live, and no further one", async () => {
  await control.createLive();
  expect(control.node.leases).toEqual([]);
  const id = await control.createLive({ connections: [CONNECTION] });
  expect(control.node.leases).toMatchObject([{ sessions: [{ session_id: id }] }]);
  const path = `/v1/sessions/${id}/connections`;
  const bound = await control.ask(`POST ${path}`, {
    body: { ...CONNECTION, name: "other", origin: "https://b.example.com" },
  });
  expect(bound.status, bound.text).toBe(201);
  expect(control.node.leases).toHaveLength(1);
});

test("a node that lost its lease has one again once a Connection is bound", async () => {
  const id = await control.createLive({ connections: [{ ...CONNECTION, name: "first" }] });
  control.node.leases.splice(0);
  const bound = await control.ask(`POST /v1/sessions/${id}/connections`, {
    body: { ...CONNECTION, origin: "https://b.example.com" },
  });
  expect(bound.status, bound.text).toBe(201);
  expect(
    control.node.leases.flatMap(({ sessions }) => sessions.map(({ session_id }) => session_id)),
  ).toContain(id);
});

/** Where the Connections of one session do not arrive. */
class OneLate extends NodeClient {
  late = "";
  /** The push of that session waits for it. */
  until: Promise<void> = Promise.resolve();
  /** The node has the lease once it was sent this often. */
  renewals = 1;

  override async putConnections(sent: SessionConnections, over: AbortSignal): Promise<ConnectionsKept> {
    if (sent.session_id === this.late)
      await this.until.then(() => {
        throw new Error("it cannot be sent");
      });
    const kept = await super.putConnections(sent, over);
    return { ...kept, is_leased: control.node.leases.length >= this.renewals };
  }
}

async function withOneLate() {
  const { databaseUrl, nodeSocket, kekSource } = control.settings;
  const nodes = new OneLate(nodeSocket);
  const db = openDatabase({ url: databaseUrl, log: silentLog });
  onTestFinished(async () => {
    await nodes.close();
    await db.destroy();
  });
  const { keyring } = await Keyring.load(kekSource);
  const own = await control.createLive({ connections: [CONNECTION] });
  nodes.late = await control.createLive({ connections: [CONNECTION] });
  control.node.connections.delete(nodes.late);
  control.node.leases.splice(0);
  return { deps: { db, nodes, keyring }, own };
}

/** As long as the lease of a gateway. */
const LEASE_MS = 20_000 * SLOWNESS;

test("a session waits a while for the lease, not until those of others arrive; and a renewal gives up before the lease ends", {
  timeout: LEASE_MS,
}, async () => {
  const { deps, own } = await withOneLate();
  const arrives = Promise.withResolvers<void>();
  onTestFinished(() => arrives.resolve());
  deps.nodes.until = arrives.promise;
  deps.nodes.renewals = 2;
  let isOver = false;
  const renewal = keepLease(deps).finally(() => {
    isOver = true;
  });
  const outcome = expect(renewal).rejects.toThrow("did not arrive in time");
  await putInForce(deps, own);
  expect([control.node.leases.length, isOver]).toEqual([1, false]);
  await outcome;
});

test("a lease that waits for a session whose Connections cannot be sent is renewed at once, which leaves that one out", async () => {
  const { deps, own } = await withOneLate();
  deps.nodes.renewals = 2;
  await putInForce(deps, own);
  expect(control.node.leases).toHaveLength(2);
});
