/** Rotations of the key-encryption key while processes that carry them out are killed: every secret stays readable. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { randomId } from "@vivarium/kit/id";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { withMortal } from "../../test-support/mortal-control.ts";
import { type Database, openDatabase } from "../db/pool.ts";
import { openSecret } from "../registries/seal.ts";
import { findSessionById } from "../sessions/store.ts";
import type { KekSource } from "./kek-source.ts";
import { Keyring } from "./keyring.ts";
import { openStateKey } from "./state-key.ts";
import { countDataKeys } from "./store.ts";
import { openVariables, saveSealedValues, sealVariables } from "./variables.ts";

const IS_FULL = process.env.VIV_TEST_FULL === "1";
const SESSIONS = IS_FULL ? 10_000 : 300;
const KILLS = IS_FULL ? 20 : 3;
/** A process is killed within so long after it has begun. */
const LIVES_MS = IS_FULL ? 3_000 : 150;
const ROTATE = "POST /v1/admin/keys/rotate";

let folder: string;
let source: KekSource & { kind: "file" };
let control: Control;
let db: Database;
beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "rotation-"));
  source = { kind: "file", file: path.join(folder, "kek"), mayMake: true };
  // Its own sweeps would do the work before the processes that are killed do.
  control = await startControl({ kekSource: source, sweeps: false });
  db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
});
afterAll(async () => {
  await db.destroy();
  await control.close();
  rmSync(folder, { recursive: true, force: true });
});

const operator = () => readFileSync(path.join(control.settings.controlDir, "operator.key"), "utf8").trim();
const secretOf = (id: string) => ({ TOKEN: `secret of ${id}` });

/** Paused sessions with a secret each, beside the one that the traffic uses. */
async function addSessions(like: string): Promise<string[]> {
  const { keyring } = await Keyring.load(source);
  const { rows } = await control.sql.query("select * from sessions where id = $1", [like]);
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
    const { columns, values } = sealVariables(keyring, owner, { env: {}, secrets: secretOf(id) });
    await control.sql.query("update sessions set kek_id = $2, data_key = $3 where id = $1", [
      id,
      columns.kek_id,
      columns.data_key,
    ]);
    await saveSealedValues(db, values);
  }
  return ids;
}

/** A sealed pause, a checkpoint, a template and a registry's credential: what they are sealed with is the node's copy, and the database has it wrapped. */
async function saveSealed() {
  const id = await control.createLive({ secrets: { TOKEN: "of a paused session" } });
  const stateKey = control.node.machines.get(`${id}-1`)?.stateKey;
  const { checkpoint_id: chk } = (await control.ask(`POST /v1/sessions/${id}/checkpoints`)).body;
  expect((await control.ask(`POST /v1/sessions/${id}/templates`, { body: { name: "tools" } })).status).toBe(
    200,
  );
  expect((await control.ask(`POST /v1/sessions/${id}/pause`)).status).toBe(200);
  const credential = { name: "hub", registry_host: "docker.io", username: "u", secret: "of a registry" };
  expect((await control.ask("POST /v1/registry-credentials", { body: credential })).status).toBe(201);
  return {
    /** With the keys that the file has now alone, in a process that had no others. */
    expectToOpen: async () => {
      const { keyring } = await Keyring.load(source);
      for (const table of ["sessions", "checkpoints", "templates"]) {
        const { rows } = await control.sql.query(`select * from ${table} where state_key is not null`);
        expect(rows.length, table).toBeGreaterThan(0);
        for (const row of rows) expect(await openStateKey(keyring, row), table).toBeDefined();
      }
      const { rows: credentials } = await control.sql.query("select * from registry_credentials");
      expect(await Promise.all(credentials.map((row) => openSecret(keyring, row)))).toEqual([
        "of a registry",
      ]);
      const { rows } = await control.sql.query("select * from sessions where id = $1", [id]);
      expect((await openStateKey(keyring, rows[0]))?.toString("base64url")).toBe(stateKey);
      await withMortal(control, "", async (mortal) => {
        const ask = async (call: string, body?: object) => {
          const answer = await mortal.ask(call, body);
          if (answer === "broken") throw new Error(`${call} got no answer`);
          expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300);
          return answer.body as { session_id: string };
        };
        await ask(`POST /v1/sessions/${id}/resume`);
        expect(control.node.machines.get(`${id}-2`)?.stateKey).toBe(stateKey);
        for (const [call, body] of [
          [`POST /v1/checkpoints/${chk}/sessions`, {}],
          ["POST /v1/sessions", { template: "tools" }],
        ] as const) {
          const { session_id: started } = await ask(call, body);
          await eventually(() => expect(control.node.machines.get(`${started}-1`)?.stateKey).toBe(stateKey));
        }
      });
    },
  };
}

async function expectReadable(ids: string[]): Promise<void> {
  const { keyring } = await Keyring.load(source);
  for (const id of ids) {
    const session = await findSessionById(db, id);
    if (!session) throw new Error(`session ${id} is gone`);
    expect((await openVariables({ db, keyring }, session)).secrets).toEqual(secretOf(id));
  }
}

test("every secret is readable after each kill, and the old keys can go at the end", {
  timeout: (IS_FULL ? 1_800_000 : 120_000) * SLOWNESS,
}, async () => {
  const live = await control.createLive({ secrets: { TOKEN: "of the traffic" } });
  const ids = await addSessions(live);
  const sealed = await saveSealed();
  const over = new AbortController();
  const traffic = (async () => {
    for (; !over.signal.aborted; await sleep(20)) {
      expect((await control.exec(live)).status).toBe(200);
      expect(control.node.execs.at(-1)?.env.TOKEN).toBe("of the traffic");
    }
  })();
  for (let kill = 0; kill < KILLS; kill++) {
    expect((await control.ask(ROTATE, { key: operator() })).status).toBe(200);
    await withMortal(control, "", async (mortal) => {
      await sleep(Math.random() * LIVES_MS);
      mortal.kill();
      await mortal.died;
    });
    await expectReadable(ids);
  }
  const current = `kek_${KILLS + 1}`;
  await withMortal(control, "", () =>
    eventually(async () => expect([...(await countDataKeys(db)).keys()]).toEqual([current]), 60_000),
  );
  over.abort();
  await traffic;
  const line = readFileSync(source.file, "utf8")
    .split("\n")
    .find((one) => one.startsWith(`${current}:`));
  writeFileSync(source.file, `${line}\n`, { mode: 0o600 });
  await expectReadable(ids);
  await sealed.expectToOpen();
});
