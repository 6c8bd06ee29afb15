import { sleep } from "@vivarium/kit/clock";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../control.test-support.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterAll(() => control.close());
afterEach(() => control.destroyAll());

/** Several rounds of writing. */
const WRITTEN_WITHIN_MS = 1_000;

const written = async (id: string): Promise<Date> => {
  const { rows } = await control.sql.query("select last_active_at from sessions where id = $1", [id]);
  return rows[0].last_active_at;
};
/** An operation of its owner's is written down. */
const expectWritten = async (id: string) => {
  const before = await written(id);
  await sleep(5);
  expect((await control.exec(id)).status).toBe(200);
  await eventually(async () => expect((await written(id)).getTime()).toBeGreaterThan(before.getTime()));
};

test("an operation on another organisation's session is no activity of it", async () => {
  const id = await control.createLive();
  await expectWritten(id);
  const key = await control.addKey();
  await sleep(WRITTEN_WITHIN_MS);
  const before = await written(id);
  const body = { command: ["true"] };
  for (const [call, given] of [
    [`POST /v1/sessions/${id}/exec`, body],
    ["POST /v1/sessions/batch/exec", { session_ids: [id], ...body }],
    [`PUT /v1/sessions/${id}/files/batch`, { files: [{ path: "a", content: "" }] }],
    [`GET /v1/sessions/${id}/processes`, undefined],
  ] as const) {
    const { body: answer } = await control.ask(call, { key, body: given });
    expect(JSON.stringify(answer)).toContain("not_found");
  }
  await sleep(WRITTEN_WITHIN_MS);
  expect(await written(id)).toEqual(before);
  await expectWritten(id);
});

test("ids that no session can have do not stop activity from being written", async () => {
  const id = await control.createLive();
  const body = { command: ["true"] };
  await control.ask("POST /v1/sessions/%00/exec", { body });
  await control.ask("POST /v1/sessions/batch/exec", { body: { session_ids: ["\u0000", id], ...body } });
  await sleep(WRITTEN_WITHIN_MS);
  await expectWritten(id);
});
