/** Sealed rows that somebody changed or moved in the database: they do not open, and nothing else is held up. */
import { randomBytes } from "node:crypto";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { openFor, sealFor } from "./data-key.ts";

const CANARY = "canary-77d1e0";
let control: Control;
beforeAll(async () => {
  control = await startControl();
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
