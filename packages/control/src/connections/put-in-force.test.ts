/** The first lease for the node's gateway, before the first sweep. */
import { once } from "node:events";
import type { ConnectionsKept, SessionConnections } from "@vivarium/contract/node";
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

/** Where the Connections of one session never arrive. */
class OneStuck extends NodeClient {
  stuck = "";
  hasGivenUp = false;

  override async putConnections(sent: SessionConnections, over: AbortSignal): Promise<ConnectionsKept> {
    if (sent.session_id !== this.stuck) return await super.putConnections(sent, over);
    await once(over, "abort");
    this.hasGivenUp = true;
    throw new Error("the renewal is over");
  }
}

test("a session waits a while for the lease, not until those of others arrive; and a renewal gives up before the lease ends", async () => {
  const { databaseUrl, nodeSocket, kekSource } = control.settings;
  const nodes = new OneStuck(nodeSocket);
  const db = openDatabase({ url: databaseUrl, log: silentLog });
  onTestFinished(async () => {
    await nodes.close();
    await db.destroy();
  });
  const { keyring } = await Keyring.load(kekSource);
  const own = await control.createLive({ connections: [CONNECTION] });
  nodes.stuck = await control.createLive({ connections: [CONNECTION] });
  control.node.connections.delete(nodes.stuck);
  control.node.leases.splice(0);
  await putInForce({ db, nodes, keyring }, own);
  expect([control.node.leases.length, nodes.hasGivenUp]).toEqual([1, false]);
  await expect(keepLease({ db, nodes, keyring })).rejects.toThrow("the renewal is over");
  expect(control.node.leases).toHaveLength(1);
});
