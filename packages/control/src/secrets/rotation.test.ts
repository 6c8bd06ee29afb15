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
import { findSessionById } from "../sessions/store.ts";
import type { KekSource } from "./kek-source.ts";
import { Keyring } from "./keyring.ts";
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

async function expectReadable(ids: string[]): Promise<void> {
  const { keyring } = await Keyring.load(source);
  for (const id of ids) {
    const session = await findSessionById(db, id);
    if (!session) throw new Error(`session ${id} is gone`);
    expect((await openVariables({ db, keyring }, session)).secrets).toEqual(secretOf(id));
  }
}

test("every secret is readable after each kill, and the old keys can go at the end", {
  timeout: (IS_FULL ? 1_800_000 : 60_000) * SLOWNESS,
}, async () => {
  const live = await control.createLive({ secrets: { TOKEN: "of the traffic" } });
  const ids = await addSessions(live);
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
});
