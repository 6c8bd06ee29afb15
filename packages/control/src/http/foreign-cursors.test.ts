/** A cursor grants nothing: with one of another organisation a caller gets rows of its own, if any. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
/** The key of each organisation, and a session of it that is live. */
let mine: { key: string; id: string };
let theirs: { key: string; id: string };
beforeAll(async () => {
  control = await startControl();
  const keys = [control.key, await control.addKey()];
  // Rows of one and the other alternate, so that the position of a cursor has rows of both on either side.
  for (let turn = 0; turn < 3; turn++)
    for (const key of keys) {
      const id = await control.createLive({}, key);
      await control.ask(`POST /v1/sessions/${id}/checkpoints`, { key });
      await control.ask(`DELETE /v1/sessions/${id}`, { key });
    }
  const [own, other] = await Promise.all(
    keys.map(async (key) => ({ key, id: await control.createLive({}, key) })),
  );
  if (!own || !other) throw new Error("a session is missing");
  [mine, theirs] = [own, other];
  const entries = [0, 1, 2].flatMap((turn) =>
    [mine.id, theirs.id].map((id) => ({
      ...{ machine_id: `${id}-1`, at: new Date().toISOString(), kind: "tls" as const, port: 443 },
      ...{ host: `h${turn}.${id}.example.com`, bytes_out: 1, bytes_in: 1 },
      ...{ verdict: "allowed" as const, reason: "name_allowed" as const },
    })),
  );
  control.node.report = { ...control.node.report, entries, cursor: "c1" };
  for (const { key, id } of [mine, theirs])
    await eventually(async () => {
      const { body } = await control.ask(`GET /v1/sessions/${id}/egress-log`, { key });
      expect(body.entries).toHaveLength(3);
    });
});
afterAll(() => control.close());

test.each([
  ["sessions that have ended", "/v1/sessions?state=ended", "sessions", "session_id"],
  ["checkpoints", "/v1/checkpoints?", "checkpoints", "checkpoint_id"],
  ["the audit log", "/v1/audit?", "entries", "id"],
  ["events", "/v1/events?", "events", "id"],
  ["the egress log of a session", "/v1/sessions/:id/egress-log?", "entries", "host"],
])("a cursor of another organisation shows none of its rows: %s", async (_title, path, rows, name) => {
  const list = async ({ key, id }: typeof mine, query: string) => {
    const headers = { accept: "application/json" };
    const { status, body } = await control.ask(`GET ${path.replace(":id", id)}&${query}`, { key, headers });
    const names = body[rows]?.map((row: Record<string, string>) => row[name]) as string[] | undefined;
    return { status, names: names ?? [], cursor: body.next_cursor as string };
  };
  const [all, first] = [await list(theirs, "limit=200"), await list(theirs, "limit=1")];
  expect(all.names.length).toBeGreaterThanOrEqual(3);
  expect(first.names).toEqual(all.names.slice(0, 1));
  const own = (await list(mine, "limit=200")).names;
  const got = await list(mine, `limit=200&cursor=${first.cursor}`);
  expect([200, 400]).toContain(got.status);
  expect(got.names.filter((one) => !own.includes(one))).toEqual([]);
  expect(own.filter((one) => all.names.includes(one))).toEqual([]);
  // It leads its owner to the rest.
  expect((await list(theirs, `limit=200&cursor=${first.cursor}`)).names).toEqual(all.names.slice(1));
});
