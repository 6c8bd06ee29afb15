/** A flood of denials does not fill the audit log: each caller has so many entries a minute, and the others are counted. */
import { LIMITS } from "@vivarium/contract/api";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

const MINUTE_MS = 60_000;
const AT_ONCE = 20;
let control: Control;
beforeAll(async () => {
  control = await startControl();
  // One minute for all of them, however long the host takes.
  vi.useFakeTimers({ toFake: ["Date"], now: Math.ceil(Date.now() / MINUTE_MS) * MINUTE_MS });
});
afterAll(async () => {
  vi.useRealTimers();
  await control.close();
});

/** A key that may only read. */
const addReader = async (name: string) =>
  (await control.ask("POST /v1/api-keys", { body: { name, role: "read" } })).body as {
    id: string;
    key: string;
  };

/** Requests that are all denied: a change with a key that may only read, and anything without a key. */
async function flood(key: string | null, count: number): Promise<void> {
  for (let sent = 0; sent < count; sent += AT_ONCE) {
    const some = Array.from({ length: Math.min(AT_ONCE, count - sent) }, () =>
      control.ask("POST /v1/projects", { key, body: { name: "p" } }),
    );
    for (const { status } of await Promise.all(some)) expect(status).toBe(key === null ? 401 : 403);
  }
}

const denialsOf = async (actor: string): Promise<number> => {
  const { rows } = await control.sql.query(
    "select count(*)::int from audit_log where actor_id = $1 and outcome = 'denied' and action = 'project.create'",
    [actor],
  );
  return rows[0].count;
};
const counted = async (): Promise<Record<string, number>> => {
  const { body } = await control.ask("GET /v1/audit?action=denials.suppressed");
  return Object.fromEntries(
    body.entries.map((entry: { actor: { id: string }; target: string; meta: { suppressed: number } }) => {
      expect(entry.target).toBe(entry.actor.id);
      return [entry.actor.id, entry.meta.suppressed];
    }),
  );
};

test("those of a key past its limit are counted under it, those of unknown callers together, and no one else's", async () => {
  const [busy, quiet] = [await addReader("busy"), await addReader("quiet")];
  await flood(busy.key, LIMITS.auditDenialsPerMinute + 30);
  await flood(null, LIMITS.auditUnknownDenialsPerMinute + 40);
  await flood(quiet.key, 5);
  const limits: [string, number][] = [
    [busy.id, LIMITS.auditDenialsPerMinute],
    ["anonymous", LIMITS.auditUnknownDenialsPerMinute],
    [quiet.id, 5],
  ];
  for (const [actor, most] of limits)
    await eventually(async () => expect([actor, await denialsOf(actor)]).toEqual([actor, most]));
  expect(await counted()).toEqual({});
  vi.setSystemTime(Date.now() + MINUTE_MS);
  await flood(busy.key, 1);
  await eventually(async () => expect(await counted()).toEqual({ [busy.id]: 30, anonymous: 40 }));
  // The new minute has entries again.
  await eventually(async () => expect(await denialsOf(busy.id)).toBe(LIMITS.auditDenialsPerMinute + 1));
});

test("those of a minute that is not over are counted when the service stops", async () => {
  await flood(null, LIMITS.auditUnknownDenialsPerMinute + 7);
  await control.app.close();
  const { rows } = await control.sql.query(
    "select meta from audit_log where action = 'denials.suppressed' order by seq desc limit 1",
  );
  expect(rows).toEqual([{ meta: { suppressed: 7 } }]);
});
