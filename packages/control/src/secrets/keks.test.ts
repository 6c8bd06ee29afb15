/** Key-encryption keys: where they come from, their rotation, and starts without the right ones. */
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, KEKS, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { createApp } from "../app.ts";
import { type KekSource, readKeks } from "./kek-source.ts";
import { KEY_TABLES } from "./store.ts";

const keyOf = (letter: string) => Buffer.alloc(32, letter).toString("base64url");
const PATH = "/v1/admin/keys/rotate";

let folder: string;
let control: Control;
let file: string;
beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "keks-"));
  file = path.join(folder, "kek");
  control = await startControl({ kekSource: { kind: "file", file, mayMake: true } });
});
afterEach(() => control.destroyAll());
afterAll(async () => {
  await control.close();
  rmSync(folder, { recursive: true, force: true });
});

const operator = () => readFileSync(path.join(control.settings.controlDir, "operator.key"), "utf8").trim();
const status = async () => (await control.ask(`GET ${PATH}`, { key: operator() })).body;
const restart = (kekSource: KekSource | undefined) =>
  createApp({ ...control.settings, kekSource }, silentLog);

describe("the file", () => {
  test("is made at the first start, for its owner alone", async () => {
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(await status()).toEqual({
      current: "kek_1",
      keys: [{ id: "kek_1", is_loaded: true, data_keys: 0 }],
      unsealed: 0,
    });
  });

  test.each([
    [
      "that any user can read",
      () => writeFileSync(path.join(folder, "open"), KEKS, { mode: 0o644 }),
      "open",
      /every user can read/,
    ],
    [
      "without a key",
      () => writeFileSync(path.join(folder, "empty"), "# none\n", { mode: 0o600 }),
      "empty",
      /contains no key/,
    ],
    [
      "with half a key",
      () => writeFileSync(path.join(folder, "half"), "kek_1:abc\n", { mode: 0o600 }),
      "half",
      /key 1 must be kek_<number>/,
    ],
    ["that is missing", () => undefined, "missing", /no such file/],
  ])("%s is refused, and left as it is", async (_what, write, name, message) => {
    write();
    const own = path.join(folder, name);
    await expect(readKeks({ kind: "file", file: own, mayMake: false })).rejects.toThrow(message);
  });
});

test("keys come from the environment, and from the output of a command", async () => {
  const text = `kek_1:${keyOf("a")}, kek_7:${keyOf("b")}`;
  expect((await readKeks({ kind: "text", text }))?.map(({ id }) => id)).toEqual(["kek_1", "kek_7"]);
  const command = `printf 'kek_3:${keyOf("c")}\\n'`;
  expect(await readKeks({ kind: "command", command })).toEqual([{ id: "kek_3", key: Buffer.alloc(32, "c") }]);
  const failing = readKeks({ kind: "command", command: "echo kek-canary; exit 4" });
  await expect(failing).rejects.toThrow(/^the command in VIV_KEK_COMMAND ended with code 4$/);
});

test("a rotation that names a key is refused, since the service chooses it", async () => {
  const before = await status();
  const answer = await control.ask(`POST ${PATH}`, { key: operator(), body: { id: "kek_2" } });
  expect([answer.status, answer.body.error]).toEqual([400, "id: unknown field; this object takes no others"]);
  expect(await status()).toEqual(before);
});

test("a rotation brings every data key under the new key, and the old one can go", async () => {
  const secret = { secrets: { TOKEN: "still here" }, env: { A: "1" } };
  const ids = [await control.createLive(secret), await control.createLive(secret)];
  const { checkpoint_id: cid } = (await control.ask(`POST /v1/sessions/${ids[0]}/checkpoints`)).body;
  const before = (await status()).current;
  const rotated = await control.ask(`POST ${PATH}`, { key: operator() });
  expect(rotated.status).toBe(200);
  expect(rotated.body.current).not.toBe(before);
  await eventually(async () => {
    const { keys } = await status();
    expect(keys.find(({ id }: { id: string }) => id === before).data_keys).toBe(0);
  });
  // Without the old key all of it still opens.
  const lines = readFileSync(file, "utf8").split("\n");
  const kept = path.join(folder, "kept");
  writeFileSync(kept, lines.filter((line) => !line.startsWith(`${before}:`)).join("\n"), { mode: 0o600 });
  const app = await restart({ kind: "file", file: kept, mayMake: false });
  try {
    const headers = { authorization: `Bearer ${control.key}` };
    for (const id of ids) {
      const { body } = await app.server.inject({ url: `/v1/sessions/${id}`, headers });
      expect(JSON.parse(body).env).toEqual({ A: "1" });
    }
    const url = `/v1/checkpoints/${cid}/sessions`;
    const started = await app.server.inject({ method: "POST", url, headers });
    expect(started.json().env).toEqual({ A: "1" });
  } finally {
    await app.close();
  }
  await control.ask(`DELETE /v1/checkpoints/${cid}`);
});

describe("a start is refused", () => {
  test.each([
    [
      "without the key that sealed the rows",
      { kind: "text", text: `kek_999:${keyOf("z")}` },
      /is not there: put it back/,
    ],
    ["with another key of that name", undefined, /is not the one of this name/],
  ])("%s, and makes no file", async (_what, source, message) => {
    await control.createLive({ secrets: { A: "1" } });
    const { current } = await status();
    const given = (source ?? { kind: "text", text: `${current}:${keyOf("z")}` }) as KekSource;
    await expect(restart(given)).rejects.toThrow(message);
    const elsewhere = path.join(folder, "elsewhere");
    await expect(restart({ kind: "file", file: elsewhere, mayMake: true })).rejects.toThrow(/put it back/);
    expect(() => statSync(elsewhere)).toThrow("ENOENT");
  });
});

/** The tables that have a row with a data key. */
async function sealedTables({ sql }: Control): Promise<string[]> {
  const tables: string[] = [];
  for (const table of KEY_TABLES) {
    const { rowCount } = await sql.query(`select from ${table} where kek_id is not null`);
    if (rowCount) tables.push(table);
  }
  return tables;
}

test("after the statements of the operator's page for a key that is lost, the service starts", async () => {
  // Without sweeps, which shred the key of an artifact that cannot be captured.
  const kekOfBefore: KekSource = { kind: "text", text: `kek_1:${keyOf("a")}` };
  const lost = await startControl({ sweeps: false, kekSource: kekOfBefore });
  try {
    const id = await lost.createLive({ secrets: { A: "1" }, env: { B: "2" } });
    expect((await lost.ask(`POST /v1/sessions/${id}/checkpoints`)).status).toBe(200);
    const saved = await lost.ask(`POST /v1/sessions/${id}/templates`, { body: { name: "sealed" } });
    expect(saved.status).toBe(200);
    await lost.sql.query(
      `insert into artifacts (id, org_id, session_id, cause, paths, expires_at, kek_id, data_key)
       select 'art_' || repeat('a', 21), org_id, id, 'request', '{/a}', now() + interval '1 day', kek_id, data_key
       from sessions where id = $1`,
      [id],
    );
    const credential = {
      name: "one",
      registry_host: "registry.example.com",
      username: "sam",
      secret: "canary",
    };
    expect((await lost.ask("POST /v1/registry-credentials", { body: credential })).status).toBe(201);
    await lost.sql.query(
      `with key as (select org_id, kek_id, data_key from sessions where id = $1),
       space as (insert into archive_spaces (id, org_id, owner, kek_id, data_key) select 'space', org_id, $1, kek_id, data_key from key returning id)
       insert into archives (id, org_id, space_id, kind, snapshot_id, session_id, kek_id, data_key)
       select 'archive', org_id, 'space', 'pause', 'snapshot', $1, kek_id, data_key from key`,
      [id],
    );
    expect(await sealedTables(lost)).toEqual([...KEY_TABLES]);
    const page = readFileSync("docs/operate/secrets.md", "utf8");
    const [, statements = ""] = /`(update\ssessions\sset\skek_id[^`]*)`/.exec(page) ?? [];
    await lost.sql.query(statements);
    expect(await sealedTables(lost)).toEqual([]);
    const kekSource: KekSource = { kind: "text", text: `kek_1:${keyOf("z")}` };
    const app = await createApp({ ...lost.settings, kekSource }, silentLog);
    await app.close();
  } finally {
    await lost.close();
  }
});

test("variables that were kept unsealed are sealed once there is a key", async () => {
  const id = await control.createLive();
  await control.sql.query(`update sessions set env = '{"OLD": "value"}' where id = $1`, [id]);
  await eventually(async () => {
    const { rows } = await control.sql.query("select env, kek_id from sessions where id = $1", [id]);
    expect(rows).toEqual([{ env: null, kek_id: (await status()).current }]);
  });
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.env).toEqual({ OLD: "value" });
});

test("variables of a session that has ended are deleted, not sealed", async () => {
  const id = await control.createLive();
  await control.ask(`DELETE /v1/sessions/${id}`);
  // As a release before the seals left them.
  await control.sql.query(`update sessions set env = '{"OLD": "value"}' where id = $1`, [id]);
  await eventually(async () => {
    const { rows } = await control.sql.query("select env, kek_id from sessions where id = $1", [id]);
    expect(rows).toEqual([{ env: null, kek_id: null }]);
  });
  const { rowCount } = await control.sql.query("select from sealed_values where session_id = $1", [id]);
  expect(rowCount).toBe(0);
});

describe("a session whose data key was damaged", () => {
  const damage = async () => {
    const id = await control.createLive({ secrets: { A: "1" } });
    await control.sql.query(
      `update sessions set data_key = set_byte(data_key, 20, get_byte(data_key, 20) # 1) where id = $1`,
      [id],
    );
    return id;
  };

  test("holds up no rotation of what comes after it", async () => {
    const id = await control.createLive({ env: { A: "1" } });
    const { checkpoint_id: cid } = (await control.ask(`POST /v1/sessions/${id}/checkpoints`)).body;
    await damage();
    const { current } = (await control.ask(`POST ${PATH}`, { key: operator() })).body;
    await eventually(async () => {
      const { rows } = await control.sql.query("select kek_id from checkpoints where id = $1", [cid]);
      expect(rows).toEqual([{ kek_id: current }]);
    });
    await control.ask(`DELETE /v1/checkpoints/${cid}`);
  });

  test("does not stop the service from starting", async () => {
    const ids = [
      await control.createLive({ secrets: { A: "1" } }),
      await control.createLive({ env: { A: "1" } }),
    ];
    for (const id of ids) {
      const { rows } = await control.sql.query(
        `update sessions set data_key = '\\x01' where id = $1 returning (select data_key from sessions where id = $1) as before`,
        [id],
      );
      // A row that was written later is looked at later.
      await control.sql.query("update sessions set data_key = data_key where id <> $1", [id]);
      await (await restart(control.settings.kekSource)).close();
      await control.sql.query("update sessions set data_key = $2 where id = $1", [id, rows[0].before]);
    }
  });
});

describe("the operator's key", () => {
  test("opens the operator's routes, and nothing of an organisation", async () => {
    expect((await control.ask(`GET ${PATH}`, { key: operator() })).status).toBe(200);
    for (const call of ["GET /v1/sessions", "GET /v1/whoami", "POST /v1/sessions"]) {
      const answer = await control.ask(call, {
        key: operator(),
        body: call.startsWith("POST") ? {} : undefined,
      });
      expect([call, answer.status, answer.body.code]).toEqual([call, 403, "forbidden"]);
    }
  });

  test("is the only one that does", async () => {
    for (const method of ["GET", "POST"]) {
      const answer = await control.ask(`${method} ${PATH}`);
      expect([answer.status, answer.body.code]).toEqual([403, "forbidden"]);
    }
    const wrong = await control.ask(`GET ${PATH}`, { key: `${operator()}x` });
    expect(wrong.status).toBe(401);
  });
});
