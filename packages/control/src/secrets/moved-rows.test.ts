/** Sealed rows that somebody changed or moved in the database: they do not open, and nothing else is held up. */
import { randomBytes } from "node:crypto";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { keptLog } from "../../test-support/kept-log.ts";
import { openFor, sealFor } from "./data-key.ts";

const CANARY = "canary-77d1e0";
const { log, lines } = keptLog();
let control: Control;
beforeAll(async () => {
  control = await startControl({ log });
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

describe("sealed bytes open", () => {
  const key = randomBytes(32);
  const owner = { org_id: "org_1", id: "ses_1" };
  const sealed = sealFor(key, owner, "connection|1|api", Buffer.from(CANARY));

  test("with their key, for their owner and their place", () => {
    expect(openFor(key, owner, "connection|1|api", sealed).toString()).toBe(CANARY);
    expect(sealFor(key, owner, "connection|1|api", Buffer.from(CANARY))).not.toEqual(sealed);
  });

  test.each<[string, () => Buffer]>([
    ["another key", () => openFor(randomBytes(32), owner, "connection|1|api", sealed)],
    ["another session", () => openFor(key, { ...owner, id: "ses_2" }, "connection|1|api", sealed)],
    ["another organisation", () => openFor(key, { ...owner, org_id: "org_2" }, "connection|1|api", sealed)],
    ["another name", () => openFor(key, owner, "connection|1|apis", sealed)],
    ["another generation", () => openFor(key, owner, "connection|2|api", sealed)],
    ["another kind", () => openFor(key, owner, "secrets", sealed)],
    ["an end that is cut off", () => openFor(key, owner, "connection|1|api", sealed.subarray(0, -1))],
    ["nothing", () => openFor(key, owner, "connection|1|api", Buffer.alloc(0))],
  ])("not with or for %s", (_, open) => {
    expect(open).toThrow(/cannot be opened/);
  });

  test("not with any bit changed", () => {
    for (let at = 0; at < sealed.length; at++) {
      const changed = Buffer.from(sealed);
      changed[at] = (changed[at] ?? 0) ^ 0x10;
      expect(() => openFor(key, owner, "connection|1|api", changed), `byte ${at}`).toThrow(
        /cannot be opened/,
      );
    }
  });
});

describe("values of a session that are another one's", () => {
  const swap = (ids: readonly [string, string]) =>
    control.sql.query(
      `update sealed_values v set sealed = o.sealed from sealed_values o
       where (v.session_id, o.session_id) in (($1, $2), ($2, $1)) and v.kind = o.kind`,
      [...ids],
    );

  test("reach no program, and do again once they are put right", async () => {
    const ids = [
      await control.createLive({ secrets: { TOKEN: `${CANARY}-1` } }),
      await control.createLive({ secrets: { TOKEN: `${CANARY}-2` } }),
    ] as const;
    const third = await control.createLive({ secrets: { TOKEN: `${CANARY}-3` } });
    await swap(ids);
    const before = control.node.execs.length;
    for (const id of ids) {
      const answer = await control.exec(id);
      expect([answer.status, answer.body.code]).toEqual([500, "internal"]);
      expect(answer.text).not.toContain(CANARY);
    }
    expect(control.node.execs).toHaveLength(before);
    expect((await control.exec(third)).status).toBe(200);
    await swap(ids);
    for (const [at, id] of ids.entries()) {
      expect((await control.exec(id)).status).toBe(200);
      expect(control.node.execs.at(-1)?.env).toMatchObject({ TOKEN: `${CANARY}-${at + 1}` });
    }
  });
});

describe("a Connection whose sealed credential is", () => {
  const connection = (name: string, secret: string) => ({
    name,
    origin: `https://${name}.example.com`,
    authentication: { type: "bearer", secret },
    allow: { methods: ["GET"], paths: ["/*"] },
  });
  const sealedOf = async (id: string, name: string): Promise<Buffer> => {
    const { rows } = await control.sql.query(
      "select sealed from connections where session_id = $1 and name = $2",
      [id, name],
    );
    return rows[0].sealed;
  };
  const write = (id: string, sealed: Buffer) =>
    control.sql.query("update connections set sealed = $2 where session_id = $1 and name = 'one'", [
      id,
      sealed,
    ]);

  test.each<[string, (id: string) => Promise<Buffer>]>([
    ["that of another name", (id) => sealedOf(id, "two")],
    [
      "that of another session",
      async () => {
        const other = await control.createLive({ connections: [connection("one", `${CANARY}-other`)] });
        return await sealedOf(other, "one");
      },
    ],
    [
      "that before a replacement",
      async (id) => {
        const before = await sealedOf(id, "one");
        const path = `PUT /v1/sessions/${id}/connections/one`;
        expect((await control.ask(path, { body: connection("one", `${CANARY}-new`) })).status).toBe(200);
        return before;
      },
    ],
    [
      "changed in one byte",
      async (id) => {
        const changed = Buffer.from(await sealedOf(id, "one"));
        changed[20] = (changed[20] ?? 0) ^ 1;
        return changed;
      },
    ],
  ])("%s is not sent, and its paused session does not run until it is put right", async (_, wrong) => {
    const id = await control.createLive({
      connections: [connection("one", `${CANARY}-1`), connection("two", `${CANARY}-2`)],
    });
    const replacing = await wrong(id);
    const right = await sealedOf(id, "one");
    expect((await control.ask(`POST /v1/sessions/${id}/pause`)).status).toBe(200);
    await eventually(() => expect(control.node.machines.has(`${id}-1`)).toBe(false));
    control.node.connections.delete(id);
    await write(id, replacing);
    const refused = await control.ask(`POST /v1/sessions/${id}/resume`);
    expect([refused.status, refused.body.code]).toEqual([500, "internal"]);
    expect(refused.text).not.toContain(CANARY);
    expect(control.node.connections.get(id)).toBeUndefined();
    const other = await control.createLive({ connections: [connection("one", `${CANARY}-3`)] });
    expect(control.node.connections.get(other)?.connections).toHaveLength(1);
    await write(id, right);
    expect((await control.ask(`POST /v1/sessions/${id}/resume`)).status).toBe(200);
    expect(control.node.connections.get(id)?.connections).toHaveLength(2);
  });
});

describe("a sealed column of a session or checkpoint that is", () => {
  type Table = "sessions" | "checkpoints";
  /** A paused session and its checkpoint, with the API key of their organisation. */
  interface Owned {
    sessions: string;
    checkpoints: string;
    key: string;
  }
  const make = async (key = control.key): Promise<Owned> => {
    const connections = [
      {
        name: "one",
        origin: "https://one.example.com",
        authentication: { type: "bearer", secret: `${CANARY}-of-connection` },
        allow: { methods: ["GET"], paths: ["/*"] },
      },
    ];
    const id = await control.createLive(
      { connections, secrets: { TOKEN: CANARY }, env: { MODE: CANARY } },
      key,
    );
    const { body } = await control.ask(`POST /v1/sessions/${id}/checkpoints`, { key });
    await control.ask(`POST /v1/sessions/${id}/pause`, { key });
    return { sessions: id, checkpoints: body.checkpoint_id, key };
  };
  const read = async (table: Table, column: string, id: string): Promise<Buffer> =>
    (await control.sql.query(`select ${column} as sealed from ${table} where id = $1`, [id])).rows[0].sealed;
  const write = (table: Table, column: string, id: string, sealed: Buffer) =>
    control.sql.query(`update ${table} set ${column} = $2 where id = $1`, [id, sealed]);
  const flipped = (sealed: Buffer) => {
    const changed = Buffer.from(sealed);
    changed[sealed.length - 1] = (changed[sealed.length - 1] ?? 0) ^ 1;
    return changed;
  };

  /** Starts what needs the columns of this table; once it succeeds, everything is as before. */
  const start = async (table: Table, { sessions, checkpoints, key }: Owned) => {
    const call = {
      sessions: `sessions/${sessions}/resume`,
      checkpoints: `checkpoints/${checkpoints}/sessions`,
    };
    const answer = await control.ask(`POST /v1/${call[table]}`, { key });
    if (answer.status === 200)
      await (table === "sessions"
        ? control.ask(`POST /v1/sessions/${sessions}/pause`, { key })
        : control.ask(`DELETE /v1/sessions/${answer.body.session_id}`, { key }));
    return answer;
  };

  let starts = 0;
  beforeAll(() => {
    control.node.onStart = () => void starts++;
  });
  const COLUMNS = [
    ["sessions", "ca_key"],
    ["sessions", "state_key"],
    ["checkpoints", "sealed_env"],
    ["checkpoints", "state_key"],
  ] as const;

  test.each(COLUMNS)(
    "that of another session or organisation, or changed, starts nothing until it is put right: %s.%s",
    async (table, column) => {
      const [mine, third] = [await make(), await make()];
      const others = [await make(), await make(await control.addKey())];
      const right = await read(table, column, mine[table]);
      const expectRefused = async (owned: Owned) => {
        lines.length = 0;
        const before = starts;
        const { status, body, text } = await start(table, owned);
        expect([status, body.code]).toEqual([500, "internal"]);
        expect(text).not.toContain(CANARY);
        expect(starts).toBe(before);
        const alarms = lines.map((line) => JSON.parse(line)).filter(({ level }) => level >= 50);
        expect(alarms.map(({ msg }) => msg)).toContainEqual(
          expect.stringContaining(`the sealed values of ${owned[table]} cannot be opened`),
        );
      };
      for (const other of others) {
        const theirs = await read(table, column, other[table]);
        await write(table, column, mine[table], theirs);
        await write(table, column, other[table], right);
        for (const owned of [mine, other]) await expectRefused(owned);
        expect((await start(table, third)).status).toBe(200);
        await write(table, column, other[table], theirs);
        expect((await start(table, other)).status).toBe(200);
      }
      await write(table, column, mine[table], flipped(right));
      await expectRefused(mine);
      await write(table, column, mine[table], right);
      expect((await start(table, mine)).status).toBe(200);
      expect(lines.join("")).not.toContain(CANARY);
      for (const { checkpoints, key } of [mine, third, ...others])
        await control.ask(`DELETE /v1/checkpoints/${checkpoints}`, { key });
    },
  );
});
