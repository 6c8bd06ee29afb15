import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
const ids: string[] = [];
beforeAll(async () => {
  control = await startControl();
  for (let index = 0; index < 3; index++) ids.push(await control.createLive());
});
afterEach(() => {
  control.node.onExec = (_call, output) => output().exit();
});
afterAll(() => control.close());

const batch = (body: object) =>
  control.ask("POST /v1/sessions/batch/exec", { body: { command: ["x"], ...body } });

test("answers in the order of the request, each session once, whether items succeed or fail", async () => {
  control.node.onExec = (call, output) => {
    const out = output();
    out.stdout(String(call.env.VIVARIUM_SESSION_ID));
    out.exit(0);
  };
  const nowhere = "z".repeat(21);
  const { status, body } = await batch({ session_ids: [ids[2], nowhere, ids[0], ids[2], "bad id"] });
  expect(status).toBe(200);
  expect(body.results).toEqual([
    {
      session_id: ids[2],
      sandbox_id: ids[2],
      stdout: ids[2],
      stderr: "",
      exit_code: 0,
      duration_ms: 2,
      timed_out: false,
    },
    { session_id: nowhere, error: expect.stringMatching(/^session not found/), code: "not_found" },
    expect.objectContaining({ session_id: ids[0], stdout: ids[0] }),
    { session_id: "bad id", error: expect.stringMatching(/^session not found/), code: "not_found" },
  ]);
});

test("items run side by side", async () => {
  const begun: { exit(code: number): void }[] = [];
  control.node.onExec = (_call, output) => void begun.push(output());
  const answer = batch({ session_ids: ids });
  // None has ended: items that ran one after the other would never be three.
  await eventually(() => expect(begun).toHaveLength(ids.length)).finally(() => {
    control.node.onExec = (_call, output) => output().exit(0);
    for (const out of begun) out.exit(0);
  });
  const { body } = await answer;
  expect(body.results.map((item: { exit_code: number }) => item.exit_code)).toEqual([0, 0, 0]);
});

test("the cap per stream shrinks so that the whole answer stays below 64 MiB", async () => {
  await batch({ session_ids: [ids[0]] });
  expect(control.node.execs.at(-1)?.output_limit_bytes).toBe(4 * 1024 * 1024);
  await batch({ session_ids: [...ids, ...Array.from({ length: 17 }, (_, index) => `none-${index}`)] });
  expect(control.node.execs.at(-1)?.output_limit_bytes).toBe(Math.floor((64 * 1024 * 1024) / 40));
});

test("destroy_on_completion applies to items", async () => {
  const once = await control.createLive({ destroy_on_completion: true });
  await batch({ session_ids: [once] });
  await eventually(async () => expect((await control.ask(`GET /v1/sessions/${once}`)).status).toBe(404));
});

test.each([
  [{}, /^session_ids: must be an array, got nothing$/],
  [{ session_ids: [] }, /^session_ids: must hold 1 to 50 ids/],
  [{ session_ids: Array(51).fill("x") }, /^session_ids: must hold 1 to 50 ids/],
  [{ session_ids: [1] }, /^session_ids\[0\]: must be a string/],
  [{ session_ids: ["x"], command: [] }, /^command: must hold 1 to 1024/],
  [{ session_ids: ["x"], timeout_ms: 4_000_000 }, /^timeout_ms: /],
])("%j is refused as a whole", async (body, message) => {
  const answer = await batch(body);
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.body.error).toMatch(message);
});
