/** Bounds of what the Connections of one session have together, at a create, a bind and a replacement. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Answer, type Control, startControl } from "../../test-support/control.ts";
import { readShownConnections } from "../connection-records/status.ts";
import type { Queries } from "../db/pool.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

const MOST_SECRETS = 32_768;
const MOST_PATHS = 65_536;
const connection = (name: string, { secret = 8, paths = 0 }: { secret?: number; paths?: number } = {}) => ({
  name,
  origin: `https://${name}.example.com`,
  authentication: { type: "bearer", secret: "s".repeat(secret) },
  allow: { methods: ["GET"], paths: pathsOf(paths) },
});
/** Different paths of so many characters together. */
const pathsOf = (chars: number) =>
  Array.from({ length: Math.ceil(chars / 1_024) }, (_, at) => {
    const name = `/${String(at).padStart(3, "0")}`;
    return name.padEnd(Math.min(1_024, chars - at * 1_024), "p");
  });
const create = (connections: object[]) => control.ask("POST /v1/sessions", { body: { connections } });
const bind = (id: string, body: object): Promise<Answer> =>
  control.ask(`POST /v1/sessions/${id}/connections`, { body });
const replace = (id: string, name: string, body: object): Promise<Answer> =>
  control.ask(`PUT /v1/sessions/${id}/connections/${name}`, { body });
const outcome = ({ status, body }: Answer) => [status, String(body.error ?? "").split(", got")[0]];

describe("the secrets of a session's Connections have 32,768 characters together at most", () => {
  const four = ["a", "b", "c", "d"].map((name) => connection(name, { secret: 8_192 }));

  test("at a create", async () => {
    await control.createLive({ connections: four });
    const sessions = control.node.machines.size;
    expect(outcome(await create([...four, connection("e", { secret: 1 })]))).toEqual([
      400,
      `connections[4].authentication.secret: must leave the secrets of the session's Connections at ${MOST_SECRETS} characters together at most; the others have ${MOST_SECRETS}`,
    ]);
    expect(control.node.machines.size).toBe(sessions);
  });

  test("at a bind and at a replacement, whose own former secret does not count; a revoked one neither", async () => {
    const id = await control.createLive({ connections: four });
    const one = connection("e", { secret: 1 });
    expect(outcome(await bind(id, one))).toEqual([
      400,
      `authentication.secret: must leave the secrets of the session's Connections at ${MOST_SECRETS} characters together at most; the others have ${MOST_SECRETS}`,
    ]);
    expect((await replace(id, "a", connection("a", { secret: 8_191 }))).status).toBe(200);
    expect((await bind(id, one)).status).toBe(201);
    expect(outcome(await replace(id, "e", connection("e", { secret: 2 })))[0]).toBe(400);
    expect((await control.ask(`DELETE /v1/sessions/${id}/connections/b`)).status).toBe(204);
    expect((await replace(id, "e", connection("e", { secret: 8_192 }))).status).toBe(200);
  });
});

describe("the path patterns of a session's Connections have 65,536 characters together at most", () => {
  test("at a create", async () => {
    expect((await create([connection("a", { paths: MOST_PATHS }), connection("b")])).status).toBe(200);
    expect(
      outcome(await create([connection("a", { paths: MOST_PATHS }), connection("b", { paths: 4 })])),
    ).toEqual([
      400,
      `connections[1].allow.paths: must leave the path patterns of the session's Connections at ${MOST_PATHS} characters together at most; the others have ${MOST_PATHS}`,
    ]);
  });

  test("at a bind and at a replacement; a revoked one keeps its patterns, which count", async () => {
    const id = await control.createLive({ connections: [connection("a", { paths: 40_000 })] });
    expect(outcome(await bind(id, connection("b", { paths: 30_000 })))).toEqual([
      400,
      `allow.paths: must leave the path patterns of the session's Connections at ${MOST_PATHS} characters together at most; the others have 40000`,
    ]);
    expect((await bind(id, connection("b", { paths: 20_000 }))).status).toBe(201);
    expect(outcome(await replace(id, "b", connection("b", { paths: 25_537 })))[0]).toBe(400);
    expect((await replace(id, "b", connection("b", { paths: 25_536 }))).status).toBe(200);
    expect((await control.ask(`DELETE /v1/sessions/${id}/connections/a`)).status).toBe(204);
    expect(outcome(await bind(id, connection("c", { paths: 4 })))[0]).toBe(400);
  });
});

test("the Connections of ended sessions are not read: their records show none", async () => {
  const none = {
    selectFrom: () => {
      throw new Error("the Connections of an ended session were read");
    },
  } as unknown as Queries;
  const ended = { id: "ses_1", bound_hosts: ["a.example.com"], state: "destroyed" };
  expect((await readShownConnections(none, [ended]))(ended)).toEqual([]);
});
