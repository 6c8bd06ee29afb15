/** The chain: what somebody who can write to the database changes in the log is found. */
import { createHash } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { loadPepper } from "../access/pepper.ts";
import { openDatabase } from "../db/pool.ts";
import { auditKeyOf } from "./entry.ts";
import { type ChainDeps, extendChains, keepHeads } from "./extend-chain.ts";
import { keptHeadsFile } from "./kept-heads.ts";
import { deleteOldEntries } from "./retention.ts";

let control: Control;
let deps: ChainDeps & { db: ReturnType<typeof openDatabase> };
/** A new organisation for each test, so that each has a chain of its own. */
let key: string;
let org: string;
beforeAll(async () => {
  // Without sweeps, so that nothing is linked but by the tests.
  control = await startControl({ sweeps: false });
  const { controlDir, databaseUrl } = control.settings;
  deps = {
    db: openDatabase({ url: databaseUrl, log: silentLog }),
    auditKey: auditKeyOf(await loadPepper(controlDir)),
    keptHeadsFile: keptHeadsFile(controlDir),
    log: silentLog,
  };
});
afterAll(async () => {
  await deps.db.destroy();
  await control.close();
});

beforeEach(async () => {
  key = await control.addKey();
  org = (await control.ask("GET /v1/org", { key })).body.org_id;
});

const sql = async (text: string, values: unknown[] = []) => (await control.sql.query(text, values)).rows;
const change = (name: string) => control.ask("POST /v1/projects", { key, body: { name } });
const idsOf = async () =>
  (await sql("select id from audit_log where org_id = $1 order by seq", [org])).map(({ id }) => id as string);
/** Makes entries that are in the chain. Returns their ids. */
async function chained(count: number): Promise<string[]> {
  for (let n = 0; n < count; n++) await change(`p${n}`);
  await extendChains(deps);
  return await idsOf();
}

interface Verified {
  findings: { kind: string; entry_id?: string; seq?: number }[];
  checked: number;
  waiting: number;
  before_chain: number;
  head?: { seq: number; hash: string };
  anchor?: { seq: number };
}
/** All steps of a verification. */
async function verify(query = ""): Promise<Verified> {
  const all: Verified = { findings: [], checked: 0, waiting: 0, before_chain: 0 };
  let cursor = "";
  do {
    const { status, body } = await control.ask(`GET /v1/audit/verify?${query}${cursor}`, { key });
    expect(status).toBe(200);
    all.findings.push(...body.findings);
    for (const name of ["checked", "waiting", "before_chain"] as const) all[name] += body[name];
    Object.assign(all, { head: body.head, anchor: body.anchor });
    cursor = body.next_cursor && `&cursor=${body.next_cursor}`;
  } while (cursor);
  return all;
}
const kindsOf = ({ findings }: Verified) => findings.map(({ kind }) => kind);

test("an untouched log verifies, up to its newest link", async () => {
  await chained(3);
  const verified = await verify();
  expect(verified).toMatchObject({ findings: [], checked: 6, waiting: 0, before_chain: 0 });
  expect(verified.head).toMatchObject({ seq: 3, hash: expect.stringMatching(/^[0-9a-f]{64}$/) });
});

test("the create of a session with Connections verifies, whose names and hosts the database puts in another order", async () => {
  const connection = {
    name: "api",
    origin: "https://api.example.com",
    authentication: { type: "bearer", secret: "s" },
  };
  await control.createLive({ connections: [connection] }, key);
  await extendChains(deps);
  expect(await verify()).toMatchObject({ findings: [], waiting: 0 });
});

test("a log without entries verifies", async () => {
  expect(await verify()).toMatchObject({ findings: [], checked: 0 });
});

test("entries that are not in the chain yet are counted, and found if they stay so", async () => {
  await chained(1);
  await change("later");
  expect(await verify()).toMatchObject({ findings: [], waiting: 1 });
  await sql("update audit_log set written_at = now() - interval '1 hour' where org_id = $1", [org]);
  const [, later] = await idsOf();
  expect((await verify()).findings).toMatchObject([{ kind: "entry_unlinked", entry_id: later }]);
  await extendChains(deps);
  expect(await verify()).toMatchObject({ findings: [], waiting: 0 });
});

describe("an entry that is changed by SQL is found", () => {
  test.each([
    ["action = 'key.create'"],
    ["actor_id = 'key_other'"],
    ["actor_kind = 'system'"],
    ["target = 'prj_other'"],
    ["at = at - interval '1 hour'"],
    ["ip = '10.0.0.1'"],
    ["request_id = 'other'"],
    ["outcome = 'denied'"],
    ["code = 'forbidden'"],
    ["session_id = 'other'"],
    [`meta = '{"name": "other"}'`],
    ["seq = default"],
    ["id = 'aud_' || repeat('z', 21)"],
    ["org_id = 'org_other'"],
  ])("%s", async (set) => {
    const ids = await chained(3);
    await sql(`update audit_log set ${set} where id = $1`, [ids[1]]);
    const { findings } = await verify();
    const expected = /^(id|org_id) =/.test(set) ? "entry_removed" : "entry_changed";
    expect(findings[0]).toMatchObject({ kind: expected, seq: 2, entry_id: ids[1] });
    await sql("delete from audit_log where id like 'aud_zzzz%' or org_id = 'org_other'");
  });

  test("also before it is in the chain, and it does not get into it", async () => {
    await chained(1);
    await change("later");
    const [, later] = await idsOf();
    await sql("update audit_log set ip = '10.0.0.1' where id = $1", [later]);
    expect((await verify()).findings).toMatchObject([{ kind: "entry_put_in", entry_id: later }]);
    await extendChains(deps);
    expect((await verify()).findings).toMatchObject([{ kind: "entry_put_in", entry_id: later }]);
    expect((await verify()).head?.seq).toBe(1);
  });
});

test.each([
  ["first", 0],
  ["middle", 1],
  ["last", 2],
])("the %s entry that is removed is found", async (_which, at) => {
  const ids = await chained(3);
  await sql("delete from audit_log where id = $1", [ids[at]]);
  expect((await verify()).findings).toMatchObject([
    { kind: "entry_removed", seq: at + 1, entry_id: ids[at] },
  ]);
});

test.each([
  ["first", 1, ["link_removed"]],
  ["middle", 2, ["link_removed"]],
  ["last", 3, ["end_removed"]],
] as const)("an entry that is removed with its link, the %s, is found", async (_which, seq, kinds) => {
  const ids = await chained(3);
  await sql("delete from audit_log where id = $1", [ids[seq - 1]]);
  await sql("delete from audit_links where org_id = $1 and seq = $2", [org, seq]);
  expect(kindsOf(await verify())).toEqual(kinds);
});

test("links that are numbered anew after a removal are found", async () => {
  const ids = await chained(4);
  await sql("delete from audit_log where id = $1", [ids[1]]);
  await sql("delete from audit_links where org_id = $1 and seq = 2", [org]);
  for (const seq of [3, 4])
    await sql("update audit_links set seq = seq - 1 where org_id = $1 and seq = $2", [org, seq]);
  expect((await verify()).findings[0]).toMatchObject({ kind: "link_changed", seq: 2 });
});

test("an end that is removed with a head made to fit is found, because the head has no seal", async () => {
  const ids = await chained(3);
  await sql("delete from audit_log where id = $1", [ids[2]]);
  await sql("delete from audit_links where org_id = $1 and seq = 3", [org]);
  await sql(
    `update audit_heads set seq = 2, hash = (select hash from audit_links where org_id = $1 and seq = 2)
     where org_id = $1`,
    [org],
  );
  expect(kindsOf(await verify())).toEqual(["head_forged"]);
});

describe("an entry that somebody puts in is found, and is never linked", () => {
  const insert = (columns: string, values: string) =>
    sql(
      `insert into audit_log (id, org_id, at, actor_kind, actor_id, action, target, outcome, request_id, ip, meta, ${columns})
       select 'aud_' || repeat('q', 21), org_id, at, actor_kind, actor_id, action, target, outcome, request_id, ip, meta, ${values}
       from audit_log where org_id = $1 order by seq limit 1`,
      [org],
    );
  test.each([
    ["without a seal", "seal", "null"],
    ["with the seal of another", "seal", "seal"],
    ["as one that is in the chain already", "seal, linked", "seal, 'whole'"],
    ["as one of a version without a chain", "seal, linked", "null, 'whole'"],
    ["as one that was refused", "seal, linked", "seal, 'refused'"],
  ])("%s", async (_how, columns, values) => {
    await chained(2);
    await insert(columns, values);
    const id = `aud_${"q".repeat(21)}`;
    expect((await verify()).findings).toMatchObject([{ kind: "entry_put_in", entry_id: id }]);
    await extendChains(deps);
    expect((await verify()).findings).toMatchObject([{ kind: "entry_put_in", entry_id: id }]);
    await sql("delete from audit_log where id = $1", [id]);
    expect((await verify()).findings).toEqual([]);
  });
});

describe("a link that is changed is found", () => {
  test.each([
    ["entry_id = 'aud_other'", ["link_changed", "entry_removed"]],
    ["digest = sha256('x')", ["link_changed", "entry_changed"]],
    ["hash = sha256('x')", ["link_changed", "link_changed"]],
    ["seal = sha256('x')", ["link_changed"]],
    ["kind = 'start'", ["link_changed", "entry_changed"]],
    ["linked_at = linked_at - interval '1 day'", ["link_changed"]],
  ])("%s", async (set, kinds) => {
    await chained(3);
    await sql(`update audit_links set ${set} where org_id = $1 and seq = 2`, [org]);
    const found = kindsOf(await verify());
    expect(found.slice(0, kinds.length).toSorted()).toEqual(kinds.toSorted());
  });

  test("links that change places are found", async () => {
    await chained(3);
    for (const [from, to] of [
      [1, 99],
      [2, 1],
      [99, 2],
    ])
      await sql("update audit_links set seq = $3 where org_id = $1 and seq = $2", [org, from, to]);
    expect(kindsOf(await verify()).filter((kind) => kind === "link_changed")).not.toEqual([]);
  });

  test("a chain that is computed anew without the key is found", async () => {
    const ids = await chained(3);
    await sql("update audit_log set ip = '10.0.0.1' where id = $1", [ids[1]]);
    const forged = { ...deps, auditKey: Buffer.alloc(32, 7) };
    await sql("delete from audit_links where org_id = $1", [org]);
    await sql("delete from audit_heads where org_id = $1", [org]);
    await sql("update audit_log set linked = 'no' where org_id = $1", [org]);
    await extendChains(forged);
    const found = await verify();
    expect(kindsOf(found)).toContain("head_forged");
    expect(kindsOf(found)).toContain("entry_put_in");
  });

  test("a link beyond the head is found", async () => {
    await chained(2);
    await sql(
      `insert into audit_links select org_id, seq + 5, entry_id, kind, linked_at, digest, hash, seal
       from audit_links where org_id = $1 and seq = 2`,
      [org],
    );
    expect(kindsOf(await verify())).toEqual(["link_put_in"]);
  });
});

describe("a head that is changed is found", () => {
  test.each([
    ["seq = seq + 1"],
    ["hash = sha256('x')"],
    ["at = at + interval '1 day'"],
    ["anchor_seq = 1"],
    ["anchor_hash = sha256('x')"],
    ["unsealed_until = 1000000"],
    ["seal = sha256('x')"],
  ])("%s", async (set) => {
    await chained(2);
    await sql(`update audit_heads set ${set} where org_id = $1`, [org]);
    expect(kindsOf(await verify())[0]).toBe("head_forged");
  });
});

describe("what somebody else wrote is not made genuine by the service:", () => {
  const removeFirst = async (count: number, ids: string[]) => {
    await sql("delete from audit_log where id = any($1)", [ids.slice(0, count)]);
    await sql("delete from audit_links where org_id = $1 and seq <= $2", [org, count]);
  };

  test("a beginning that is removed with an anchor made to fit stays found once the chain is longer", async () => {
    const ids = await chained(4);
    await sql(
      `update audit_heads set anchor_seq = 2,
         anchor_hash = (select hash from audit_links where org_id = $1 and seq = 2) where org_id = $1`,
      [org],
    );
    await removeFirst(2, ids);
    expect(kindsOf(await verify())).toEqual(["head_forged"]);
    await change("later");
    await extendChains(deps);
    expect(kindsOf(await verify())).toEqual(["head_forged"]);
  });

  test("an entry without a seal stays found, although the head was changed to say that it is older than the chain", async () => {
    await chained(2);
    await sql("update audit_heads set unsealed_until = 1000000 where org_id = $1", [org]);
    await change("later");
    await extendChains(deps);
    await sql(
      `insert into audit_log (id, org_id, at, actor_kind, actor_id, action, target, outcome, request_id, ip, meta, linked)
       values ($1, $2, now(), 'api_key', 'k', 'session.exec', 's', 'ok', 'r', '::1', '{}', 'whole')`,
      [`aud_${"g".repeat(21)}`, org],
    );
    expect(kindsOf(await verify())).toEqual(["head_forged", "entry_put_in"]);
  });

  test.each([
    [
      "a link that is made older",
      "update audit_links set linked_at = now() - interval '91 days' where org_id = $1 and seq = 2",
    ],
    [
      "links that are made older together",
      "update audit_links set linked_at = now() - interval '91 days' where org_id = $1 and seq <= 2",
    ],
  ])("the retention removes nothing for %s", async (_what, change) => {
    await chained(3);
    await sql(change, [org]);
    await deleteOldEntries(deps);
    expect(await idsOf()).toHaveLength(3);
    expect(kindsOf(await verify())).toContain("link_changed");
  });

  test("the retention moves no anchor of a head that was changed", async () => {
    const ids = await chained(3);
    await sql(
      `update audit_heads set anchor_seq = 1,
         anchor_hash = (select hash from audit_links where org_id = $1 and seq = 1) where org_id = $1`,
      [org],
    );
    await removeFirst(1, ids);
    await whileLater(() => deleteOldEntries(deps));
    expect(kindsOf(await verify())).toContain("head_forged");
  });
});

describe("an older state of the log that is put back", () => {
  /** Rows, links and head as they are now, to be put back later. */
  async function backup(): Promise<() => Promise<void>> {
    const tables = ["audit_log", "audit_links", "audit_heads"];
    for (const table of tables)
      await sql(`create table old_${table} as select * from ${table} where org_id = '${org}'`);
    return async () => {
      for (const table of tables) {
        await sql(`delete from ${table} where org_id = $1`, [org]);
        const overriding = table === "audit_log" ? "overriding system value" : "";
        await sql(`insert into ${table} ${overriding} select * from old_${table}`);
        await sql(`drop table old_${table}`);
      }
    };
  }

  test("is found by the head in the file, which is kept as evidence", async () => {
    await chained(2);
    const putBack = await backup();
    await change("to be forgotten");
    await extendChains(deps);
    await keepHeads(deps);
    expect(kindsOf(await verify())).toEqual([]);
    await putBack();
    expect((await verify()).findings).toMatchObject([{ kind: "chain_shortened", seq: 3 }]);
    await change("another third one");
    await extendChains(deps);
    await keepHeads(deps);
    expect((await verify()).findings).toMatchObject([{ kind: "chain_shortened", seq: 3 }]);
    const file = JSON.parse(await readFile(deps.keptHeadsFile, "utf8"));
    delete file[org];
    await writeFile(deps.keptHeadsFile, JSON.stringify(file));
    expect(kindsOf(await verify())).toEqual([]);
  });

  test("is found by a head that the caller has kept", async () => {
    await chained(2);
    const putBack = await backup();
    await change("to be forgotten");
    await extendChains(deps);
    const { head } = await verify();
    const known = `known=${head?.seq}.${head?.hash}`;
    expect(kindsOf(await verify(known))).toEqual([]);
    await putBack();
    expect(kindsOf(await verify())).toEqual([]);
    expect(kindsOf(await verify(known))).toEqual(["chain_shortened"]);
    await rm(deps.keptHeadsFile, { force: true });
  });
});

test("a command is linked when it starts and when it ends, and both are protected", async () => {
  const other = await startControl();
  try {
    const id = await other.createLive();
    const { promise, resolve } = Promise.withResolvers<void>();
    other.node.onExec = async (_call, output) => {
      const running = output();
      await promise;
      running.exit(3);
    };
    const ran = other.exec(id);
    const kinds = async () =>
      (
        await other.sql.query(
          "select l.kind from audit_links l join audit_log e on e.id = l.entry_id where action = 'session.exec' order by l.seq",
        )
      ).rows.map(({ kind }) => kind);
    await eventually(async () => expect(await kinds()).toEqual(["start"]));
    const found = async () => {
      const findings: { kind: string }[] = [];
      let cursor = "";
      do {
        const { body } = await other.ask(`GET /v1/audit/verify?${cursor}`);
        findings.push(...body.findings);
        cursor = body.next_cursor && `cursor=${body.next_cursor}`;
      } while (cursor);
      return findings.map(({ kind }) => kind);
    };
    expect(await found()).toEqual([]);
    resolve();
    await ran;
    await eventually(async () => expect(await kinds()).toEqual(["start", "end"]));
    expect(await found()).toEqual([]);
    const set = (text: string) =>
      other.sql.query(`update audit_log set ${text} where action = 'session.exec'`);
    await set(`meta = meta || '{"exit_code": 0}'`);
    expect(await found()).toContain("entry_changed");
    await set(`meta = meta || '{"exit_code": 3}'`);
    expect(await found()).toEqual([]);
    await set("outcome = 'pending'");
    expect(await found()).toContain("entry_changed");
  } finally {
    await other.close();
  }
});

test.each(["no", "start"])(
  "an entry that is linked again, because its mark became %s, is found",
  async (mark) => {
    const ids = await chained(3);
    expect((await verify()).findings).toEqual([]);
    await sql("update audit_log set linked = $2 where id = $1", [ids[1], mark]);
    const twice = { kind: "entry_linked_twice", entry_id: ids[1] };
    // Before anything happens, the mark alone shows it; a mark that asks for nothing is harmless until it does.
    if (mark === "no") expect((await verify()).findings).toEqual([expect.objectContaining(twice)]);
    await extendChains(deps);
    expect((await sql("select from audit_links where entry_id = $1", [ids[1]])).length).toBe(2);
    expect((await verify()).findings).toEqual([expect.objectContaining({ ...twice, seq: 4 })]);
    // It stays found once the mark is as before, and later entries verify.
    await change("later");
    await extendChains(deps);
    expect((await verify()).findings).toEqual([expect.objectContaining({ ...twice, seq: 4 })]);
  },
);

test("entries of versions without a chain are counted, and no later ones pass for them", async () => {
  const insert = (id: string) =>
    sql(
      `insert into audit_log (id, org_id, at, actor_kind, actor_id, action, target, outcome, request_id, ip, meta, linked)
       values ($1, $2, now(), 'api_key', 'k', 'session.exec', 's', 'ok', 'r', '::1', '{}', 'whole')`,
      [id, org],
    );
  await insert(`aud_${"e".repeat(21)}`);
  await chained(1);
  expect(await verify()).toMatchObject({ findings: [], before_chain: 1 });
  const later = `aud_${"f".repeat(21)}`;
  await insert(later);
  expect(await verify()).toMatchObject({
    findings: [{ kind: "entry_put_in", entry_id: later }],
    before_chain: 1,
  });
});

/** Does the work when all that was written before is older than the retention. */
async function whileLater(work: () => Promise<unknown>): Promise<void> {
  await sql(
    "create or replace function service_now() returns timestamptz language sql stable as $$select now() + interval '91 days'$$",
  );
  try {
    await work();
  } finally {
    await sql(
      "create or replace function service_now() returns timestamptz language sql stable as 'select now()'",
    );
  }
}

test("the retention moves the anchor, and the rest verifies", async () => {
  await chained(3);
  await whileLater(async () => {
    await change("young");
    await extendChains(deps);
    expect(await idsOf()).toHaveLength(4);
    await deleteOldEntries(deps);
  });
  expect(await idsOf()).toHaveLength(1);
  expect(await verify()).toMatchObject({ findings: [], anchor: { seq: 3 }, head: { seq: 4 } });
  await sql("update audit_heads set anchor_seq = 2 where org_id = $1", [org]);
  expect(kindsOf(await verify())).toContain("head_forged");
});

test("old entries of versions without a chain are removed, also if nothing was written since", async () => {
  await sql(
    `insert into audit_log (id, org_id, at, actor_kind, actor_id, action, target, outcome, request_id, ip, meta, linked)
     values ($1, $2, now() - interval '91 days', 'api_key', 'k', 'session.exec', 's', 'ok', 'r', '::1', '{}', 'whole')`,
    [`aud_${"h".repeat(21)}`, org],
  );
  await deleteOldEntries(deps);
  expect(await idsOf()).toEqual([]);
});

test("two processes that extend the chain at once make one chain", async () => {
  for (let n = 0; n < 8; n++) {
    await change(`q${n}`);
    await Promise.all([extendChains(deps), extendChains(deps), extendChains(deps)]);
  }
  await extendChains(deps);
  expect(await verify()).toMatchObject({ findings: [], waiting: 0, head: { seq: 8 } });
});

test("an export has every link with its entry, and its hashes follow from each other", async () => {
  const ids = await chained(3);
  const answer = await control.ask("GET /v1/audit/export", { key });
  expect([answer.status, answer.headers["content-type"]]).toEqual([200, "application/x-ndjson"]);
  const lines = answer.text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(lines.map(({ type }) => type)).toEqual(["link", "link", "link", "head"]);
  expect(lines.slice(0, 3).map(({ entry }) => entry.id)).toEqual(ids);
  let previous = "0".repeat(64);
  for (const { link } of lines.slice(0, 3)) {
    const { seq, entry_id, kind, at, digest } = link;
    const text = JSON.stringify(["vivarium audit link 1", org, seq, entry_id, kind, at, digest, previous]);
    expect([link.previous, link.hash]).toEqual([previous, sha256(text)]);
    previous = link.hash;
  }
  expect(lines[3].head).toMatchObject({ seq: 3, hash: previous });
  const rest = (await control.ask("GET /v1/audit/export?after=2", { key })).text.trimEnd().split("\n");
  expect(rest).toEqual(answer.text.trimEnd().split("\n").slice(2));
});

test.each(["cursor=x", "known=x", "known=1.zz"])(
  "a verification with %s is refused by name",
  async (query) => {
    const { status, body } = await control.ask(`GET /v1/audit/verify?${query}`, { key });
    expect([status, body.code, body.error.split(":")[0]]).toEqual([400, "validation", query.split("=")[0]]);
  },
);

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
