/** Many Connections: they are bound, listed, leased and revoked, and what the lease costs follows from what changed alone. */
import { randomId } from "@vivarium/kit/id";
import { size } from "@vivarium/kit/test-support/sizes";
import { createQueryId, type KyselyPlugin, type RootOperationNode } from "kysely";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { type Database, openDatabase } from "../db/pool.ts";
import { NodeClient } from "../fleet/node-client.ts";
import { Keyring } from "../secrets/keyring.ts";
import { sealVariables } from "../secrets/variables.ts";
import { authorityColumns } from "./authority.ts";
import { emitExpired } from "./emit-expired.ts";
import { keepLease } from "./keep-lease.ts";

const SESSIONS = size({ ci: 20, full: 1_000 });
const EACH = 10;
/** A lease names a session and its version: 21 characters and a number, with their JSON. */
const LEASE_BYTES_EACH = 80;
const AT_ONCE = 8;

let control: Control;
let db: Database;
let counted: Database;
let nodes: NodeClient;
let keyring: Keyring;
let queries: RootOperationNode[] = [];
const counter: KyselyPlugin = {
  transformQuery: ({ node }) => {
    queries.push(node);
    return node;
  },
  transformResult: async ({ result }) => result,
};
beforeAll(async () => {
  // Without sweeps, so that leases are those of the test.
  control = await startControl({ sweeps: false });
  const { databaseUrl, nodeSocket, kekSource } = control.settings;
  db = openDatabase({ url: databaseUrl, log: silentLog });
  counted = db.withPlugin(counter) as Database;
  nodes = new NodeClient(nodeSocket);
  ({ keyring } = await Keyring.load(kekSource));
});
afterAll(async () => {
  await nodes.close();
  await db.destroy();
  await control.close();
});

/** Paused sessions that were made with a Connection each. */
async function addSessions(): Promise<string[]> {
  const { rows } = await control.sql.query("select * from sessions where id = $1", [
    await control.createLive(),
  ]);
  const { org_id, project_id, key_id } = rows[0];
  const ids = Array.from({ length: SESSIONS }, () => randomId());
  await control.sql.query(
    `insert into sessions (id, org_id, project_id, key_id, origin, state, size, template, no_sudo, on_pty_detach, paused_ttl_ms,
       destroy_on_completion, command_capture, egress, wake_on_http, may_keep_alive, paused_at, snapshot_id)
     select unnest($1::text[]), $2, $3, $4, 'api', 'paused', 'small', 'base', false, 'pause', -1, false, 'hash',
       '{"mode": "allow", "allow": []}', false, true, now(), 'pau_none'`,
    [ids, org_id, project_id, key_id],
  );
  for (const id of ids) {
    const owner = { org_id, id };
    const { columns, key } = sealVariables(
      keyring,
      owner,
      { env: {}, secrets: {} },
      { hasConnections: true },
    );
    if (!key) throw new Error("the session has no data key");
    const ca = await authorityColumns(key, owner, []);
    await db
      .updateTable("sessions")
      .set({ kek_id: columns.kek_id, data_key: columns.data_key, ...ca })
      .where("id", "=", id)
      .execute();
  }
  return ids;
}

const connection = (n: number) => ({
  name: `c${n}`,
  origin: `https://c${n}.example.com`,
  authentication: { type: "bearer", secret: `secret-${n}` },
  allow: { methods: ["GET"], paths: ["/*"] },
});

async function each(ids: readonly string[], work: (id: string) => Promise<void>): Promise<void> {
  const next = ids.values();
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (const id of next) await work(id);
    }),
  );
}

/** The number of queries of a lease, and the bytes that it sends of all sessions together. */
async function lease(): Promise<{ count: number; bytes: number }> {
  queries = [];
  await keepLease({ db: counted, nodes, keyring });
  return { count: queries.length, bytes: JSON.stringify(control.node.leases.at(-1)).length };
}

/** Tables that a statement reads from end to end even where the planner is set to avoid that. */
async function scannedBy(node: RootOperationNode): Promise<string[]> {
  const { sql, parameters } = db.getExecutor().compileQuery(node, createQueryId());
  await control.sql.query("set enable_seqscan = off");
  const { rows } = await control.sql.query(`explain (format json) ${sql}`, [...parameters]);
  await control.sql.query("reset enable_seqscan");
  const plans: { "Node Type": string; "Relation Name"?: string; Plans?: [] }[] = [
    rows[0]["QUERY PLAN"][0].Plan,
  ];
  for (const plan of plans) plans.push(...(plan.Plans ?? []));
  return plans
    .filter((plan) => plan["Node Type"] === "Seq Scan")
    .map((plan) => String(plan["Relation Name"]));
}

test("many Connections cost a lease one query, and only what changed is sent", {
  timeout: size({ ci: 240_000, full: 3_600_000 }),
}, async () => {
  const ids = await addSessions();
  await each(ids, async (id) => {
    for (let n = 0; n < EACH; n++) {
      const made = await control.ask(`POST /v1/sessions/${id}/connections`, { body: connection(n) });
      expect(made.status, made.text).toBe(201);
    }
    const { connections } = (await control.ask(`GET /v1/sessions/${id}/connections`)).body;
    expect(connections).toHaveLength(EACH);
  });
  // The node has nothing of paused sessions, and the lease names no session.
  expect(await lease()).toMatchObject({ count: 1 });
  expect(control.node.leases.at(-1)?.sessions).toEqual([]);

  await control.sql.query(
    "update sessions set state = 'live', paused_at = null, snapshot_id = null where id = any($1)",
    [ids],
  );
  const first = await lease();
  // A session and its Connections in one snapshot, for each session that the node lacks.
  expect(first.count).toBe(1 + 2 * SESSIONS);
  for (const id of ids) expect(control.node.connections.get(id)?.connections).toHaveLength(EACH);
  const second = await lease();
  expect(second.count).toBe(1);
  expect(second.bytes).toBeLessThan(LEASE_BYTES_EACH * (SESSIONS + 2));

  // Paused again, so that a revocation is not sent at once; a few sessions are live.
  const revoked = ids.slice(0, 5);
  await control.sql.query(
    "update sessions set connections_version = connections_version + 1 where id = any($1)",
    [revoked],
  );
  await control.sql.query(
    "update connections set revoked_at = now(), sealed = null where session_id = any($1) and name = 'c3'",
    [revoked],
  );
  expect((await lease()).count).toBe(1 + 2 * revoked.length);
  for (const id of ids) {
    const tombstones = revoked.includes(id) ? ["c3"] : [];
    expect(control.node.connections.get(id)?.tombstones.map(({ name }) => name)).toEqual(tombstones);
  }
  // Over HTTP each is one session's work.
  await each(ids, async (id) => {
    expect((await control.ask(`DELETE /v1/sessions/${id}/connections/c0`)).status).toBe(204);
  });
  expect((await lease()).count).toBe(1);
  for (const id of ids)
    expect(control.node.connections.get(id)?.connections.map(({ name }) => name)).not.toContain("c0");
});

test("no statement of a lease, of its sending and of expiry reads a whole table", async () => {
  await control.sql.query("update connections set expires_at = now() where name = 'c1'");
  await control.sql.query(
    "update sessions set connections_version = connections_version + 1 where ca_key is not null",
  );
  await lease();
  const ofLease = queries;
  queries = [];
  await emitExpired({ db: counted });
  expect(ofLease.length).toBeGreaterThan(2);
  expect(queries.length).toBeGreaterThan(1);
  const statements = [ofLease[0], ...ofLease.slice(1, 3), ...queries].filter((node) => node !== undefined);
  for (const node of statements) expect(await scannedBy(node)).toEqual([]);
  // Positive control: a statement without an index is seen.
  const unindexed = db
    .selectFrom("connections")
    .select("name")
    .where("auth_type", "=", "bearer")
    .toOperationNode();
  expect(await scannedBy(unindexed)).toEqual(["connections"]);
});
