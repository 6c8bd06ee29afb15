/** Connections of sessions: binding, replacing, revoking, what the node gets of them, and who inherits them. */
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Answer, type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { holds } from "../../test-support/forms-of.ts";
import { keptLog } from "../../test-support/kept-log.ts";
import { dumpRows } from "../db/dump-rows.ts";
import { openDatabase } from "../db/pool.ts";
import { noteUses } from "./note-uses.ts";

const { log, lines } = keptLog();
let control: Control;
beforeAll(async () => {
  control = await startControl({ log });
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

const connection = (more: object = {}) => ({
  name: "api",
  origin: "https://api.example.com",
  authentication: { type: "bearer", secret: "canary-1" },
  allow: { methods: ["get", "POST"], paths: ["/v1/*"] },
  ...more,
});
const bearer = (secret: string) => ({ authentication: { type: "bearer", secret } });
const bound = (more: object = {}, session: object = {}) =>
  control.createLive({ connections: [connection(more)], ...session });
const bind = (id: string, more: object = {}): Promise<Answer> =>
  control.ask(`POST /v1/sessions/${id}/connections`, { body: connection(more) });
const replace = (id: string, name: string, body: object): Promise<Answer> =>
  control.ask(`PUT /v1/sessions/${id}/connections/${name}`, { body });
const revoke = (id: string, name = "api"): Promise<Answer> =>
  control.ask(`DELETE /v1/sessions/${id}/connections/${name}`);
const list = async (id: string) => (await control.ask(`GET /v1/sessions/${id}/connections`)).body.connections;
/** The Connections of a session that the node has. */
const sent = (id: string) => control.node.connections.get(id);
const eventsOf = async (id: string) => {
  const { rows } = await control.sql.query(
    "select type, data from events where session_id = $1 and type like 'connection.%' order by seq",
    [id],
  );
  return rows.map(({ type, data }) => [type, data.name]);
};
/** Names of the binds in the audit log. */
const auditOf = async (id: string) => {
  const { rows } = await control.sql.query(
    "select target from audit_log where session_id = $1 and action = 'connection.create' order by seq",
    [id],
  );
  return rows.map(({ target }) => target);
};
const unique = (name: string) => ({ name, origin: `https://${name}.example.com` });

describe("a create with Connections", () => {
  test("has them, and an authority that its guest trusts, before it is live", async () => {
    let atStart: unknown;
    control.node.onStart = async (machineId) => {
      atStart ??= sent(machineId.split("-", 1)[0] ?? "");
    };
    const id = await bound();
    control.node.onStart = async () => {};
    const record = (await control.ask(`GET /v1/sessions/${id}`)).body;
    expect(record.connections).toEqual([
      {
        name: "api",
        origin: "https://api.example.com",
        state: "active",
        auth_type: "bearer",
        header_name: "Authorization",
        allow: { methods: ["GET", "POST"], paths: ["/v1/*"] },
        created_at: expect.stringMatching(/Z$/),
        expires_at: expect.stringMatching(/Z$/),
      },
    ]);
    expect(await list(id)).toEqual(record.connections);
    expect(atStart).toMatchObject({
      session_id: id,
      version: 1,
      connections: [
        {
          name: "api",
          host: "api.example.com",
          methods: ["GET", "POST"],
          paths: ["/v1/*"],
          header: { name: "Authorization", value: "Bearer canary-1" },
          generation: 1,
        },
      ],
      tombstones: [],
    });
    const spec = control.node.machines.get(`${id}-1`)?.spec;
    expect(spec?.network?.bound_hosts).toEqual(["api.example.com"]);
    expect(spec?.ca?.certificate_pem).toBe(sent(id)?.ca.certificate_pem);
    expect(JSON.stringify(spec)).not.toContain("PRIVATE KEY");
    expect(await eventsOf(id)).toEqual([["connection.created", "api"]]);
  });

  test("without any, a session has no authority, and its record no list", async () => {
    const id = await control.createLive();
    expect((await control.ask(`GET /v1/sessions/${id}`)).body).not.toHaveProperty("connections");
    expect(await list(id)).toEqual([]);
    expect(control.node.machines.get(`${id}-1`)?.spec).not.toHaveProperty("ca");
    expect((await bind(id)).body.code).toBe("conflict");
  });

  test.each([
    [[connection(), connection({ origin: "https://b.example.com" })], "connections[1].name"],
    [[connection(), connection({ name: "b", origin: "https://API.example.com./" })], "connections[1].origin"],
    [Array.from({ length: 17 }, (_, n) => connection(unique(`c${n}`))), "connections"],
  ])("two of one name or origin, and a 17th, are 400", async (connections, field) => {
    const answer = await control.ask("POST /v1/sessions", { body: { connections } });
    expect([answer.status, answer.body.error.split(":")[0]]).toEqual([400, field]);
  });

  test("a policy that does not cover the origin on 443 refuses it; a wildcard and port 443 cover it", async () => {
    const create = (allow: string[]) =>
      control.ask("POST /v1/sessions", {
        body: { connections: [connection()], egress: { mode: "deny", allow } },
      });
    for (const allow of [[], ["example.com"], ["api.example.com:80"], ["*.api.example.com"]])
      expect(String((await create(allow)).body.error)).toMatch(/^connections\[0\]\.origin: must be allowed/);
    for (const allow of [["api.example.com"], ["*.example.com"], ["api.example.com:443"]])
      expect((await create(allow)).status).toBe(200);
  });

  test("the time of a Connection is bounded by that of its session", async () => {
    const leftOf = ({ expires_at, created_at }: { expires_at: string; created_at: string }) =>
      Math.round((Date.parse(expires_at) - Date.parse(created_at)) / 1000);
    expect(leftOf((await list(await bound()))[0])).toBe(3600);
    expect(leftOf((await list(await bound({}, { max_lifetime_ms: 100_000 })))[0])).toBe(100);
    expect(leftOf((await list(await bound({}, { max_lifetime_ms: 86_400_000 })))[0])).toBe(86_400);
    const body = { connections: [connection({ ttl_seconds: 101 })], max_lifetime_ms: 100_000 };
    expect((await control.ask("POST /v1/sessions", { body })).body.error).toMatch(
      /^connections\[0\]\.ttl_seconds: must be at most 100/,
    );
  });

  test("a run refuses Connections", async () => {
    const body = { language: "python", code: "1", connections: [connection()] };
    expect((await control.ask("POST /v1/sessions/exec", { body })).status).toBe(400);
  });
});

test("a Connection that is bound later is on the node, with its host, when the call answers", async () => {
  const id = await bound();
  const answer = await bind(id, {
    ...unique("two"),
    authentication: { type: "header", secret: "canary-2", header_name: "X-Key" },
  });
  expect([answer.status, answer.body.header_name]).toEqual([201, "X-Key"]);
  expect(sent(id)?.version).toBeGreaterThan(1);
  expect(sent(id)?.connections[1]).toMatchObject({
    name: "two",
    header: { name: "X-Key", value: "canary-2" },
  });
  expect(control.node.networks.get(`${id}-1`)?.bound_hosts).toEqual(["api.example.com", "two.example.com"]);
  expect((await list(id)).map(({ name }: { name: string }) => name)).toEqual(["api", "two"]);
});

test("a name, an origin or a seventeenth Connection that is taken is 409, also after it was revoked", async () => {
  const id = await bound();
  expect((await bind(id, { origin: "https://b.example.com" })).body.code).toBe("conflict");
  expect((await bind(id, { name: "b" })).body.code).toBe("conflict");
  await revoke(id);
  expect((await bind(id, { origin: "https://b.example.com" })).body.code).toBe("conflict");
  expect((await bind(id, { name: "b" })).body.code).toBe("conflict");
  for (let n = 1; n < 16; n++) expect((await bind(id, unique(`c${n}`))).status).toBe(201);
  expect((await bind(id, unique("c17"))).body.code).toBe("conflict");
});

test("many binds at once all count, each once", async () => {
  const id = await bound();
  const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => bind(id, unique(`c${n % 10}`))));
  expect(answers.map(({ status }) => status).toSorted()).toEqual([
    ...Array(10).fill(201),
    ...Array(10).fill(409),
  ]);
  expect(sent(id)?.connections).toHaveLength(11);
});

test("changes wait for nobody who has locked the organisation, as the claim of an operation does", async () => {
  const id = await bound();
  const claim = await control.sql.connect();
  try {
    await claim.query("begin");
    await claim.query("select from orgs for update");
    expect((await bind(id, unique("two"))).status).toBe(201);
    const { status } = await replace(id, "api", { origin: "https://api.example.com", ...bearer("s") });
    expect([status, (await revoke(id)).status]).toEqual([200, 204]);
  } finally {
    await claim.query("rollback");
    claim.release();
  }
});

test("a replacement is used from the answer on, as a whole; name and origin stay", async () => {
  const id = await bound();
  const body = {
    origin: "https://api.example.com/",
    ...bearer("canary-new"),
    allow: { methods: ["PUT"], paths: ["/"] },
  };
  const answer = await replace(id, "api", body);
  expect([answer.status, answer.body.allow]).toEqual([200, { methods: ["PUT"], paths: ["/"] }]);
  expect(sent(id)).toMatchObject({
    connections: [{ methods: ["PUT"], header: { value: "Bearer canary-new" } }],
  });
  expect(sent(id)?.version).toBeGreaterThan(1);
  expect(sent(id)?.connections[0]?.generation).toBe(sent(id)?.version);
  expect((await replace(id, "none", body)).status).toBe(404);
  expect((await replace(id, "api", { ...body, name: "other" })).body.error).toMatch(/^name: must be api/);
  expect((await replace(id, "api", { ...body, origin: "https://b.example.com" })).body.error).toMatch(
    /^origin: must be https/,
  );
  expect((await replace(id, "api", { ...body, allow: undefined })).body.allow).toEqual({
    methods: [],
    paths: [],
  });
  expect(await eventsOf(id)).toEqual([
    ["connection.created", "api"],
    ["connection.replaced", "api"],
    ["connection.replaced", "api"],
  ]);
});

test("a revoked Connection has no credential any more, anywhere, and stays revoked", async () => {
  const id = await bound();
  expect((await revoke(id)).status).toBe(204);
  expect(sent(id)).toMatchObject({
    connections: [],
    tombstones: [{ name: "api", host: "api.example.com", state: "revoked" }],
  });
  expect((await list(id))[0]).toMatchObject({ state: "revoked", revoked_at: expect.stringMatching(/Z$/) });
  const { rows } = await control.sql.query("select sealed from connections where session_id = $1", [id]);
  expect(rows).toEqual([{ sealed: null }]);
  expect((await revoke(id)).status).toBe(204);
  expect((await replace(id, "api", { origin: "https://api.example.com", ...bearer("s") })).body.code).toBe(
    "conflict",
  );
  expect((await revoke(id, "none")).status).toBe(404);
  expect(await eventsOf(id)).toEqual([
    ["connection.created", "api"],
    ["connection.revoked", "api"],
  ]);
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await control.ask(`POST /v1/sessions/${id}/resume`);
  expect(sent(id)?.tombstones).toHaveLength(1);
});

test("a change that the node does not confirm is 503, is kept, and arrives with the next lease", async () => {
  const id = await bound();
  control.node.onConnections = async () => {
    throw new Refusal("network_unconfirmed", "not now");
  };
  expect((await revoke(id)).body.code).toBe("session_node_unavailable");
  expect((await list(id))[0].state).toBe("revoked");
  expect(sent(id)?.connections).toHaveLength(1);
  control.node.onConnections = async () => {};
  await eventually(() => expect(sent(id)?.tombstones).toHaveLength(1));
});

test("a bind that the node does not confirm is kept, and the same request again waits for it", async () => {
  const id = await bound();
  control.node.onConnections = async () => {
    throw new Refusal("network_unconfirmed", "not now");
  };
  const answer = await bind(id, unique("two"));
  expect([answer.status, answer.body.code]).toEqual([503, "session_node_unavailable"]);
  expect(answer.headers["retry-after"]).toBeDefined();
  expect(answer.body.error).toMatch(/^the Connection is made/);
  expect((await bind(id, unique("two"))).status).toBe(503);
  // Another request under the name does not complete that bind, whatever it differs in.
  for (const other of [
    bearer("canary-2"),
    { allow: { methods: ["GET"], paths: ["/*"] } },
    { origin: "https://three.example.com" },
    { ttl_seconds: 600 },
  ])
    expect((await bind(id, { ...unique("two"), ...other })).body.code).toBe("conflict");
  control.node.onConnections = async () => {};
  await eventually(() => expect(sent(id)?.connections).toHaveLength(2));
  expect((await bind(id, unique("two"))).status).toBe(201);
  // Its caller knows now that it is made.
  expect((await bind(id, unique("two"))).body.code).toBe("conflict");
  expect(await auditOf(id)).toEqual(["two"]);
  expect(await eventsOf(id)).toEqual([
    ["connection.created", "api"],
    ["connection.created", "two"],
  ]);
});

test("a bind that is not confirmed is not completed once its time is over", async () => {
  const id = await bound();
  control.node.onConnections = async () => {
    throw new Refusal("network_unconfirmed", "not now");
  };
  for (const name of ["two", "three"]) expect((await bind(id, unique(name))).status).toBe(503);
  await control.sql.query(
    "update connections set expires_at = now() where session_id = $1 and name = 'three'",
    [id],
  );
  control.node.onConnections = async () => {};
  expect((await bind(id, unique("two"))).status).toBe(201);
  expect((await bind(id, unique("three"))).body.code).toBe("conflict");
});

test("a bind that is not confirmed is completed by a request with the same time alone, also if that is all that is left", async () => {
  const id = await bound({}, { max_lifetime_ms: 3_600_000 });
  control.node.onConnections = async () => {
    throw new Refusal("network_unconfirmed", "not now");
  };
  const named = (ttl_seconds?: number) => bind(id, { ...unique("two"), ttl_seconds });
  expect((await named(1_800)).status).toBe(503);
  control.node.onConnections = async () => {};
  for (const other of [undefined, 600]) expect((await named(other)).body.code).toBe("conflict");
  // Less of the session is left by now.
  await control.sql.query(
    "update sessions set created_at = created_at - interval '40 minutes' where id = $1",
    [id],
  );
  expect((await bind(id, { ...unique("three"), ttl_seconds: 1_800 })).body.code).toBe("validation");
  expect((await named(1_800)).status).toBe(201);
});

test("a bind that is not confirmed is replaced and revoked like another", async () => {
  const id = await bound();
  control.node.onConnections = async () => {
    throw new Refusal("network_unconfirmed", "not now");
  };
  await bind(id, unique("two"));
  await bind(id, unique("three"));
  control.node.onConnections = async () => {};
  expect((await replace(id, "two", { ...connection(unique("two")), ...bearer("canary-2") })).status).toBe(
    200,
  );
  expect((await revoke(id, "three")).status).toBe(204);
  for (const name of ["two", "three"]) expect((await bind(id, unique(name))).body.code).toBe("conflict");
});

test("a refusal repeats no secret", async () => {
  const id = await bound();
  for (const secret of ["canary ü", "canary\n", ["canary"], { canary: "canary" }])
    expect((await bind(id, { authentication: { type: "bearer", secret } })).text).not.toContain("canary");
});

test("a node that forgot everything gets it again", async () => {
  const id = await bound();
  control.node.connections.clear();
  await eventually(() => expect(sent(id)?.connections).toHaveLength(1));
});

describe("after the database was restored from a backup", () => {
  const put = (id: string, secret: string) =>
    replace(id, "api", { origin: "https://api.example.com", ...bearer(secret) });
  /** A session whose rows are those of a moment before the last changes of its Connections. */
  const withOlderRows = async () => {
    const id = await bound();
    const read = async (table: string, key: string) =>
      (await control.sql.query(`select * from ${table} where ${key} = $1`, [id])).rows[0];
    const { connections_version: version } = await read("sessions", "id");
    const { generation, sealed } = await read("connections", "session_id");
    await put(id, "canary-later");
    await put(id, "canary-last");
    const before = sent(id);
    await control.sql.query("update sessions set connections_version = $2 where id = $1", [id, version]);
    await control.sql.query("update connections set generation = $2, sealed = $3 where session_id = $1", [
      id,
      generation,
      sealed,
    ]);
    return { id, before };
  };

  test("a revocation takes the credential from the node, which has a newer version", async () => {
    const { id } = await withOlderRows();
    expect((await revoke(id)).status).toBe(204);
    expect(sent(id)).toMatchObject({ connections: [], tombstones: [{ name: "api", state: "revoked" }] });
  });

  test("a replacement has a generation that the gateway has not met", async () => {
    const { id, before } = await withOlderRows();
    expect((await put(id, "canary-new")).status).toBe(200);
    expect(sent(id)?.connections).toMatchObject([{ header: { value: "Bearer canary-new" } }]);
    expect(sent(id)?.connections[0]?.generation).toBeGreaterThan(before?.connections[0]?.generation ?? 0);
  });

  test("the node gets what the rows have, without a change", async () => {
    const { id, before } = await withOlderRows();
    await eventually(() =>
      expect(sent(id)?.connections).toMatchObject([{ header: { value: "Bearer canary-1" } }]),
    );
    expect(sent(id)?.connections[0]?.generation).toBeGreaterThan(before?.version ?? 0);
    expect((await revoke(id)).status).toBe(204);
    expect(sent(id)?.connections).toEqual([]);
  });
});

test("a paused session's Connections change without a wake, and the node has them when it runs again", async () => {
  const id = await bound();
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await eventually(() => expect(sent(id)).toBe(undefined));
  await replace(id, "api", { origin: "https://api.example.com", ...bearer("canary-3") });
  await bind(id, unique("two"));
  expect(sent(id)).toBe(undefined);
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("paused");
  await control.exec(id);
  expect(sent(id)).toMatchObject({
    connections: [{ header: { value: "Bearer canary-3" } }, { name: "two" }],
  });
  expect(control.node.machines.get(`${id}-2`)?.spec.network?.bound_hosts).toHaveLength(2);
});

test("an expired Connection is shown and sent as such, until it is replaced", async () => {
  const id = await bound();
  await control.sql.query(
    "update connections set expires_at = now() - interval '1 second' where session_id = $1",
    [id],
  );
  expect((await list(id))[0].state).toBe("expired");
  await eventually(async () => expect(await eventsOf(id)).toContainEqual(["connection.expired", "api"]));
  await bind(id, unique("two"));
  expect(sent(id)?.tombstones).toEqual([{ name: "api", host: "api.example.com", state: "expired" }]);
  const answer = await replace(id, "api", { origin: "https://api.example.com", ...bearer("s") });
  expect(answer.body.state).toBe("active");
  expect(sent(id)?.connections).toHaveLength(2);
  expect((await eventsOf(id)).filter(([type]) => type === "connection.expired")).toHaveLength(1);
});

describe("what the gateway reports", () => {
  const entryOf = (id: string) => ({
    ...{ machine_id: `${id}-1`, at: new Date().toISOString(), kind: "connection" as const },
    ...{ host: "api.example.com", port: 443, bytes_out: 1, bytes_in: 2, verdict: "allowed" as const },
    ...{ connection: "api", method: "GET", path: "/v1/a", rule: 0, status: 200 },
  });
  const report = (id: string, reasons: string[], more: object = {}) => {
    const { report: before } = control.node;
    const entries = reasons.map((reason) => ({
      ...entryOf(id),
      ...more,
      reason: reason as "connection_used",
    }));
    control.node.report = { ...before, entries, cursor: `${before.cursor}x` };
  };

  test("is in the egress log, and in the time of the last use", async () => {
    const id = await bound();
    report(id, ["connection_used"]);
    await eventually(async () => expect((await list(id))[0]).toHaveProperty("last_used_at"));
    const { entries } = (await control.ask(`GET /v1/sessions/${id}/egress-log`)).body;
    expect(entries).toMatchObject([
      {
        ...{ kind: "connection", connection: "api", method: "GET", path: "/v1/a", rule: 0, status: 200 },
        ...{ decision: "allowed", reason: "connection_used" },
      },
    ]);
  });

  test("suspends a Connection after three answers with the credential, until it is replaced", async () => {
    const id = await bound();
    report(id, ["connection_reflected", "connection_reflected"]);
    await eventually(async () => expect(await eventsOf(id)).toContainEqual(["connection.reflected", "api"]));
    expect((await list(id))[0]).not.toHaveProperty("suspended");
    report(id, ["connection_reflected"]);
    await eventually(() => expect(sent(id)?.tombstones).toMatchObject([{ state: "suspended" }]));
    expect((await list(id))[0]).toMatchObject({ state: "active", suspended: true });
    expect(await eventsOf(id)).toContainEqual(["connection.suspended", "api"]);
    await replace(id, "api", { origin: "https://api.example.com", ...bearer("s") });
    expect((await list(id))[0]).not.toHaveProperty("suspended");
    expect(sent(id)?.connections).toHaveLength(1);
  });

  test("does not suspend a Connection for what its former credential did", async () => {
    const id = await bound();
    const generation = () => sent(id)?.connections[0]?.generation;
    const former = generation();
    await replace(id, "api", { origin: "https://api.example.com", ...bearer("s") });
    const reflected = ["connection_reflected", "connection_reflected", "connection_reflected"];
    report(id, [...reflected, "connection_used"], { generation: former });
    await eventually(async () => expect((await list(id))[0]).toHaveProperty("last_used_at"));
    expect((await list(id))[0]).not.toHaveProperty("suspended");
    report(id, reflected, { generation: generation() });
    await eventually(async () => expect((await list(id))[0]).toHaveProperty("suspended"));
  });

  test("waits for a change of the session, and does not break it off", async () => {
    const id = await bound();
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    const other = await control.sql.connect();
    try {
      await other.query("begin");
      await other.query("update sessions set connections_version = connections_version + 1 where id = $1", [
        id,
      ]);
      const noted = db
        .transaction()
        .execute((tx) => noteUses(tx, [{ ...entryOf(id), reason: "connection_reflected", count: 3 }]));
      await eventually(async () => {
        const { rows } = await other.query(
          "select from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid))",
        );
        expect(rows.length).toBeGreaterThan(0);
      });
      await other.query("update connections set revoked_at = now(), sealed = null where session_id = $1", [
        id,
      ]);
      await other.query("commit");
      await noted;
      expect((await list(id))[0]).toMatchObject({ state: "revoked" });
    } finally {
      other.release();
      await db.destroy();
    }
  });
});

test("a credential that was bound while the session ended is destroyed with it", async () => {
  const id = await bound();
  const other = await control.sql.connect();
  try {
    await other.query("begin");
    await other.query("select from sessions where id = $1 for update", [id]);
    await other.query(
      `insert into connections (session_id, name, host, auth_type, header_name, methods, paths, expires_at, sealed)
       select session_id, 'late', 'late.example.com', auth_type, header_name, methods, paths, expires_at, sealed
       from connections where session_id = $1`,
      [id],
    );
    const ended = control.ask(`DELETE /v1/sessions/${id}`);
    await eventually(async () => {
      const { rows } = await other.query(
        "select from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid))",
      );
      expect(rows.length).toBeGreaterThan(0);
    });
    await other.query("commit");
    expect((await ended).status).toBe(204);
    await eventually(async () => {
      const { rows } = await other.query("select sealed from connections where session_id = $1", [id]);
      expect(rows).toEqual([{ sealed: null }, { sealed: null }]);
    });
  } finally {
    await other.query("rollback");
    other.release();
  }
});

describe("inheritance", () => {
  test("a fork is 409 while a Connection is active; its children have none, and trust no authority", async () => {
    const id = await bound();
    expect((await control.ask(`POST /v1/sessions/${id}/fork`, { body: {} })).body.code).toBe("conflict");
    await revoke(id);
    const { body } = await control.ask(`POST /v1/sessions/${id}/fork`, { body: {} });
    const [child] = body.children;
    expect(await list(child)).toEqual([]);
    const spec = control.node.machines.get(`${child}-1`)?.spec;
    expect([spec?.ca, spec?.network?.bound_hosts]).toEqual([undefined, undefined]);
  });

  test("a session from a checkpoint has those of its request alone, with an authority of its own", async () => {
    const id = await bound();
    const { checkpoint_id: cid } = (await control.ask(`POST /v1/sessions/${id}/checkpoints`, { body: {} }))
      .body;
    const start = (body: object) => control.ask(`POST /v1/checkpoints/${cid}/sessions`, { body });
    const plain = (await start({})).body;
    expect(plain).not.toHaveProperty("connections");
    const own = (await start({ connections: [connection()] })).body.session_id;
    expect(sent(own)?.ca.certificate_pem).not.toBe(sent(id)?.ca.certificate_pem);
    expect(control.node.machines.get(`${own}-1`)?.spec.ca?.certificate_pem).toBe(
      sent(own)?.ca.certificate_pem,
    );
  });

  test("a restore in place keeps Connections as they are now", async () => {
    const id = await bound();
    const { checkpoint_id: cid } = (await control.ask(`POST /v1/sessions/${id}/checkpoints`, { body: {} }))
      .body;
    await revoke(id);
    await bind(id, unique("two"));
    await control.ask(`POST /v1/sessions/${id}/restore`, { body: { checkpoint_id: cid } });
    await eventually(() =>
      expect(sent(id)).toMatchObject({ tombstones: [{ name: "api" }], connections: [{ name: "two" }] }),
    );
    expect(control.node.machines.get(`${id}-2`)?.spec.ca?.certificate_pem).toBe(sent(id)?.ca.certificate_pem);
  });

  test("a template of such a session has no memory, and its sessions no Connection and no authority", async () => {
    const id = await bound();
    const answer = await control.ask(`POST /v1/sessions/${id}/templates`, { body: { name: "mine" } });
    expect(answer.body).toMatchObject({ status: "ready", memory: false });
    const started = await control.createLive({ template: "mine" });
    expect((await control.ask(`GET /v1/sessions/${started}`)).body).not.toHaveProperty("connections");
    expect(control.node.machines.get(`${started}-1`)?.spec).not.toHaveProperty("ca");
    const own = await control.createLive({ template: "mine", connections: [connection()] });
    expect(sent(own)?.ca.certificate_pem).not.toBe(sent(id)?.ca.certificate_pem);
    await control.ask("DELETE /v1/templates/mine");
  });
});

test("the end of a session destroys its credentials and the key of its authority", async () => {
  const id = await bound();
  await control.ask(`DELETE /v1/sessions/${id}`);
  const { rows } = await control.sql.query(
    "select ca_key, data_key, sealed from sessions join connections on session_id = id where id = $1",
    [id],
  );
  expect(rows).toEqual([{ ca_key: null, data_key: null, sealed: null }]);
  await eventually(() => expect(sent(id)).toBe(undefined));
});

test("a machine that runs on after the end of its session, for the artifacts, has no credential by then", async () => {
  const id = await bound({}, { artifacts: { paths: ["out"] } });
  expect(sent(id)).toMatchObject({ connections: [{ name: "api" }] });
  expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
  expect([sent(id), control.node.endedSessions.has(id)]).toEqual([undefined, true]);
});

test("no row, event, audit entry or log line has a credential or the key of an authority in the clear", async () => {
  const id = await bound();
  await replace(id, "api", { origin: "https://api.example.com", ...bearer("canary-9") });
  const rows: string[] = [];
  await dumpRows(control.settings.databaseUrl, async (row) => void rows.push(row));
  const leaks = [...rows, ...lines].filter((text) => holds(text, "canary") || holds(text, "PRIVATE KEY"));
  expect(leaks).toEqual([]);
  // Positive control: the same search finds the certificate, which is public, and a line of the log.
  expect(rows.some((row) => holds(row, "BEGIN CERTIFICATE"))).toBe(true);
  expect(lines.length).toBeGreaterThan(0);
});

test("a pause, a wake and a restore without the session's key are refused, and leave no operation behind", async () => {
  const id = await bound();
  const { checkpoint_id } = (await control.ask(`POST /v1/sessions/${id}/checkpoints`, { body: {} })).body;
  const sealWith = (kek: string) =>
    control.sql.query("update sessions set kek_id = $2 where id = $1", [id, kek]);
  const expectRefused = async (call: string, body?: object) => {
    expect((await control.ask(`POST /v1/sessions/${id}/${call}`, { body })).body.code).toBe("unavailable");
    const { rows } = await control.sql.query("select op from sessions where id = $1", [id]);
    expect(rows).toEqual([{ op: null }]);
  };
  await sealWith("kek_gone");
  await expectRefused("restore", { checkpoint_id });
  await expectRefused("pause");
  await sealWith("kek_1");
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await sealWith("kek_gone");
  await expectRefused("resume");
  await expectRefused("restore", { checkpoint_id });
  await sealWith("kek_1");
  expect((await control.ask(`POST /v1/sessions/${id}/resume`)).status).toBe(200);
});

test("a server without an encryption key answers 503, and makes nothing", async () => {
  const other = await startControl({ kekSource: undefined });
  try {
    const answer = await other.ask("POST /v1/sessions", { body: { connections: [connection()] } });
    expect([answer.status, answer.body.code]).toEqual([503, "unavailable"]);
  } finally {
    await other.close();
  }
});
