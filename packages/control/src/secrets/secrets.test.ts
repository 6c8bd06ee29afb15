/** Secrets and variables of a session: sealed at once, given to its programs, and shown as names alone. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { openPty, streamOf } from "../../test-support/terminal-client.ts";

const CANARY = "canary-5f1d8a";
const PLAIN = "plainly-93b7";

let control: Control;
beforeAll(async () => {
  control = await startControl();
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

/** Everything that the database holds, as text. */
async function dump(of = control): Promise<string> {
  const { rows: tables } = await of.sql.query("select tablename from pg_tables where schemaname = 'public'");
  const texts: string[] = [];
  for (const { tablename } of tables) {
    const { rows } = await of.sql.query(`select t::text as row from ${tablename} t`);
    texts.push(...rows.map(({ row }) => row));
  }
  return texts.join("\n");
}
const holds = (text: string, value: string) =>
  text.includes(value) || text.includes(Buffer.from(value).toString("hex"));
const create = (body: object = {}) =>
  control.createLive({ secrets: { TOKEN: CANARY, ALSO: "x" }, env: { MODE: PLAIN }, ...body });
const record = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body;

describe("a session with secrets", () => {
  test("shows their names in order, its variables, and no value of a secret", async () => {
    const answer = await control.ask("POST /v1/sessions", {
      body: { secrets: { TOKEN: CANARY, ALSO: "x" }, env: { MODE: PLAIN } },
    });
    const shown = { env: { MODE: PLAIN }, secret_names: ["ALSO", "TOKEN"] };
    expect(answer.body).toMatchObject(shown);
    const id = answer.body.session_id;
    await control.until(id, "live");
    expect(await record(id)).toMatchObject(shown);
    const list = await control.ask("GET /v1/sessions");
    expect(list.body.sessions).toMatchObject([shown]);
    expect(answer.text + list.text).not.toContain(CANARY);
  });

  test("gives both to commands, processes, terminals and logins", async () => {
    const id = await create();
    const expected = { VIVARIUM_SESSION_ID: id, MODE: PLAIN, TOKEN: CANARY, ALSO: "x" };
    await control.exec(id);
    expect(control.node.execs.at(-1)?.env).toEqual(expected);
    const bodies: unknown[] = [];
    control.node.onGuest = async (call) => {
      bodies.push(JSON.parse((await call.body()).toString()));
      call.json({ name: "web", argv: ["x"], keep_alive: false, state: "running", started_at_ms: 1 });
    };
    const body = { name: "web", command: ["true"] };
    expect((await control.ask(`POST /v1/sessions/${id}/processes`, { body })).status).toBe(200);
    expect(bodies).toMatchObject([{ env: expected }]);
    const client = await openPty(control, id);
    const { spec } = await streamOf(control, id);
    expect(spec).toMatchObject({ env: expected });
    client.webSocket.terminate();
    await client.closed;
  });

  test("has neither secrets nor variables in the database as text", async () => {
    await create();
    const text = await dump();
    expect(holds(text, CANARY)).toBe(false);
    expect(holds(text, PLAIN)).toBe(false);
    // The search finds what is there.
    expect(text).toContain("TOKEN");
  });

  test("hands them to its forks, and not to sessions of its checkpoints", async () => {
    const id = await create();
    const { children } = (await control.ask(`POST /v1/sessions/${id}/fork`)).body;
    await control.exec(children[0]);
    expect(control.node.execs.at(-1)?.env).toMatchObject({ MODE: PLAIN, TOKEN: CANARY });
    const { checkpoint_id: cid } = (await control.ask(`POST /v1/sessions/${id}/checkpoints`)).body;
    expect(holds(await dump(), PLAIN)).toBe(false);
    const started = await control.ask(`POST /v1/checkpoints/${cid}/sessions`, { body: { env: { B: "2" } } });
    expect(started.body.env).toEqual({ MODE: PLAIN, B: "2" });
    expect(started.body).not.toHaveProperty("secret_names");
    await control.exec(started.body.session_id);
    expect(control.node.execs.at(-1)?.env).not.toHaveProperty("TOKEN");
    await control.ask(`DELETE /v1/checkpoints/${cid}`);
  });

  test("cannot have a name, or a size, that the variables of its checkpoint rule out", async () => {
    const id = await control.createLive({ env: { MODE: PLAIN, LONG: "x".repeat(60_000) } });
    const { checkpoint_id: cid } = (await control.ask(`POST /v1/sessions/${id}/checkpoints`)).body;
    const start = (body: object) => control.ask(`POST /v1/checkpoints/${cid}/sessions`, { body });
    const twice = await start({ secrets: { MODE: CANARY } });
    expect([twice.status, twice.body.error]).toEqual([
      400,
      "secrets.MODE: must not be in env as well, and the checkpoint's env has it",
    ]);
    const large = await start({ secrets: { TOKEN: "x".repeat(10_000) } });
    expect([large.status, large.body.code]).toEqual([400, "validation"]);
    expect((await start({ secrets: { TOKEN: CANARY } })).status).toBe(200);
    await control.ask(`DELETE /v1/checkpoints/${cid}`);
  });

  test("keeps them over a pause and a wake", async () => {
    const id = await create();
    await control.ask(`POST /v1/sessions/${id}/pause`);
    await control.exec(id);
    expect(control.node.execs.at(-1)?.env).toMatchObject({ TOKEN: CANARY });
  });

  test("is made into a template of its disk alone, as everything is that has its memory", async () => {
    const id = await create();
    const memoryOf = async (session: string) => {
      const saved = await control.ask(`POST /v1/sessions/${session}/templates`, { body: { name: "mine" } });
      expect(saved.status).toBe(200);
      return saved.body.memory;
    };
    expect(await memoryOf(id)).toBe(false);
    const { checkpoint_id: cid } = (await control.ask(`POST /v1/sessions/${id}/checkpoints`)).body;
    const { body: started } = await control.ask(`POST /v1/checkpoints/${cid}/sessions`);
    const { children } = (await control.ask(`POST /v1/sessions/${started.session_id}/fork`)).body;
    for (const heir of [started.session_id, children[0]]) expect(await memoryOf(heir)).toBe(false);
    await control.ask(`DELETE /v1/checkpoints/${cid}`);
    expect(await memoryOf(await control.createLive())).toBe(true);
    await control.ask("DELETE /v1/templates/mine");
  });

  test("leaves nothing that can be opened once it is destroyed", async () => {
    const id = await create();
    await control.ask(`DELETE /v1/sessions/${id}`);
    const { rows } = await control.sql.query("select kek_id, data_key, env from sessions where id = $1", [
      id,
    ]);
    expect(rows).toEqual([{ kek_id: null, data_key: null, env: null }]);
    const { rowCount } = await control.sql.query("select 1 from sealed_values where session_id = $1", [id]);
    expect(rowCount).toBe(0);
  });

  test("masks their values in what the audit log keeps of a command", async () => {
    const id = await create({ command_capture: "full" });
    await control.exec(id, ["curl", "-H", `Authorization: Bearer ${CANARY}`]);
    const client = await openPty(control, id, `?cmd=echo&cmd=${CANARY}`);
    (await streamOf(control, id)).stream.exit(0);
    await client.closed;
    const commands = await eventually(async () => {
      const { entries } = (await control.ask(`GET /v1/audit?session_id=${id}`)).body;
      const found = entries.map((entry: { meta: { command?: string[] } }) => entry.meta.command);
      expect(found.filter(Boolean)).toHaveLength(2);
      return found;
    });
    expect(commands).toContainEqual(["curl", "-H", "Authorization: Bearer [secret]"]);
    expect(commands).toContainEqual(["echo", "[secret]"]);
    expect(holds(await dump(), CANARY)).toBe(false);
  });

  test.each(["sealed_values", "data key"])(
    "answers 500 after its %s were changed, and harms no other",
    async (what) => {
      const [mine, other] = [await create(), await create({ secrets: { TOKEN: "other" } })];
      await control.sql.query(
        what === "data key"
          ? `update sessions set data_key = (select data_key from sessions where id = $2) where id = $1`
          : `update sealed_values set sealed = (select sealed from sealed_values where session_id = $2 and kind = 'secrets')
           where session_id = $1 and kind = 'secrets'`,
        [mine, other],
      );
      const refused = await control.exec(mine);
      expect([refused.status, refused.body.code]).toEqual([500, "internal"]);
      expect((await control.exec(other)).status).toBe(200);
      expect(control.node.execs.at(-1)?.env).toMatchObject({ TOKEN: "other" });
    },
  );
});

describe("a service without a key-encryption key", () => {
  let bare: Control;
  beforeAll(async () => {
    bare = await startControl({ kekSource: undefined });
  });
  afterAll(() => bare.close());

  test("refuses secrets, without Retry-After, and keeps variables", async () => {
    const answer = await bare.ask("POST /v1/sessions", { body: { secrets: { A: CANARY } } });
    expect([answer.status, answer.body.code]).toEqual([503, "unavailable"]);
    expect(answer.headers["retry-after"]).toBeUndefined();
    expect(answer.text).not.toContain(CANARY);
    expect((await bare.ask("GET /v1/healthz")).body.checks.secrets_key).toBe("off");
    const id = await bare.createLive({ env: { MODE: PLAIN } });
    expect((await bare.ask(`GET /v1/sessions/${id}`)).body.env).toEqual({ MODE: PLAIN });
    // A positive control of the searches above: unsealed variables are found.
    expect(holds(await dump(bare), PLAIN)).toBe(true);
  });
});
