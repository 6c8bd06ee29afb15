/** Deaths of control while a session gets its volume or gives it back: the next process finishes it, and no volume is left behind. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { killAt, letClaimsLapse, withMortal } from "../../test-support/mortal-control.ts";

/** Claims and leases last five seconds, and the machine may be busy. */
const TAKEN_OVER_MS = 60_000;
const LONG_MS = 600_000;

let control: Control;
beforeAll(async () => {
  control = await startControl({ volumeSizes: { usualGb: 1, maxGb: 1, orgGb: 100 } });
  await control.sql.query("update orgs set concurrent_sessions = 100");
});
afterAll(() => control.close());

const rowOf = async (id: string) =>
  (await control.sql.query("select * from sessions where id = $1", [id])).rows[0];
const read = async (volume: string) => (await control.ask(`GET /v1/volumes/${volume}`)).body;
const holderOf = (volume: string) => control.node.volumes.get(volume)?.machine_id;
const machinesOf = (id: string) => [...control.node.machines.keys()].filter((name) => name.startsWith(id));
const namedSo = async (name: string) =>
  (await control.sql.query("select id from sessions where name = $1", [name])).rows[0].id as string;

async function makeVolume(): Promise<string> {
  const made = await control.ask("POST /v1/volumes", { body: {} });
  expect(made.status).toBe(201);
  return made.body.id;
}

async function withVolume(): Promise<{ id: string; volume: string }> {
  const volume = await makeVolume();
  return { volume, id: await control.createLive({ volume_id: volume }) };
}

async function pausedWithVolume(): Promise<{ id: string; volume: string }> {
  const made = await withVolume();
  expect((await control.ask(`POST /v1/sessions/${made.id}/pause`)).status).toBe(200);
  await eventually(() => expect(holderOf(made.volume)).toBeUndefined());
  return made;
}

/** The session runs with one machine, which has the volume; nothing else does. */
async function expectAttached({ id, volume }: { id: string; volume: string }, machine: string) {
  await eventually(
    async () => expect(await rowOf(id)).toMatchObject({ state: "live", op: null }),
    TAKEN_OVER_MS,
  );
  await eventually(() => expect(machinesOf(id)).toEqual([machine]), TAKEN_OVER_MS);
  expect(holderOf(volume)).toBe(machine);
  expect(await read(volume)).toMatchObject({ attached: true, session_id: id });
  expect((await control.ask("POST /v1/sessions", { body: { volume_id: volume } })).status).toBe(409);
  expect((await control.exec(id)).status).toBe(200);
}

/** Neither the row nor the node has it for anyone, and the next session gets it. */
async function expectFree(volume: string) {
  await eventually(async () => {
    expect(await read(volume)).toMatchObject({ attached: false });
    expect(holderOf(volume)).toBeUndefined();
  }, TAKEN_OVER_MS);
  const next = await control.createLive({ volume_id: volume });
  expect(holderOf(volume)).toBe(`${next}-1`);
  expect((await control.ask(`DELETE /v1/sessions/${next}`)).status).toBe(204);
  expect((await control.ask(`DELETE /v1/volumes/${volume}`)).status).toBe(204);
  await eventually(() => expect(control.node.volumes.has(volume)).toBe(false), TAKEN_OVER_MS);
}

/** The answer may be out before the process dies. */
async function diesAfter(point: string, call: string, body?: object): Promise<void> {
  await withMortal(control, point, async (mortal) => {
    const answer = await mortal.ask(call, body);
    if (answer !== "broken") expect(answer.status).toBe(200);
    expect(await mortal.died).toBe("SIGKILL");
  });
}

describe("killed while a volume is attached, at", () => {
  test.each(["create.commit", "create.started"])(
    "%s: the new session has it",
    { timeout: LONG_MS },
    async (point) => {
      const volume = await makeVolume();
      await diesAfter(point, "POST /v1/sessions", { name: point, volume_id: volume });
      const id = await namedSo(point);
      await letClaimsLapse(control, id);
      await expectAttached({ id, volume }, `${id}-1`);
      await control.ask(`DELETE /v1/sessions/${id}`);
      await expectFree(volume);
    },
  );

  test.each(["wake.intent", "wake.started", "wake.commit"])(
    "%s: the session that wakes has it again",
    { timeout: LONG_MS },
    async (point) => {
      const made = await pausedWithVolume();
      await killAt(control, point, `POST /v1/sessions/${made.id}/resume`);
      await letClaimsLapse(control, made.id);
      await expectAttached(made, `${made.id}-2`);
    },
  );
});

describe("killed while a volume is detached, at", () => {
  test.each(["pause.commit", "volume.given_back", "pause.release"])(
    "%s of a pause: no machine has it, and it stays the session's",
    { timeout: LONG_MS },
    async (point) => {
      const { id, volume } = await withVolume();
      await diesAfter(point, `POST /v1/sessions/${id}/pause`);
      await letClaimsLapse(control, id);
      await eventually(async () => {
        expect(await rowOf(id)).toMatchObject({ state: "paused", op: null });
        expect(machinesOf(id)).toEqual([]);
      }, TAKEN_OVER_MS);
      expect(holderOf(volume)).toBeUndefined();
      expect(await read(volume)).toMatchObject({ attached: true, session_id: id });
      expect((await control.ask(`POST /v1/sessions/${id}/resume`)).status).toBe(200);
      await expectAttached({ id, volume }, `${id}-2`);
    },
  );

  test.each(["destroy.commit", "release.machines", "volume.given_back", "release.snapshots"])(
    "%s of an end: it is free, and of the session nothing is left",
    { timeout: LONG_MS },
    async (point) => {
      const { id, volume } = await withVolume();
      await killAt(control, point, `DELETE /v1/sessions/${id}`);
      await eventually(async () => {
        expect((await rowOf(id)).machine_released_at).not.toBe(null);
        expect(machinesOf(id)).toEqual([]);
      }, TAKEN_OVER_MS);
      await expectFree(volume);
    },
  );
});
