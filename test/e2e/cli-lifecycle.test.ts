import { expect, test } from "vitest";
import { startViv, viv } from "../support/command-line.ts";
import { eventually } from "../support/eventually.ts";
import { create, deleteMadeAtEnd, inside } from "../support/made-by-viv.ts";

deleteMadeAtEnd();

/** A process that counts in its own memory and appends its count, so that the file is never empty in between. */
const COUNTER = "(n=0; while :; do n=$((n+1)); echo $n >> count; sleep 0.2; done) > /dev/null 2>&1 &";
const countIn = async (id: string) => Number(await inside(id, "tail -n1 count"));

test("a paused session keeps files and processes, and the next exec or a resume wakes it", async () => {
  const id = await create();
  await inside(id, `echo kept > note; ${COUNTER}`);
  await eventually(async () => expect(await countIn(id)).toBeGreaterThan(0));
  const before = await countIn(id);

  const timed = await startViv("pause", "--timing", "--wake-at", "8h", id).ended;
  expect(timed).toMatchObject({ code: 0, out: `${id}\n` });
  const paused = JSON.parse(await viv("get", "--json", id));
  expect(paused).toMatchObject({ state: "paused", snapshot_tier: "hot" });
  const aheadMs = Date.parse(paused.wake_at) - Date.now();
  expect(aheadMs).toBeGreaterThan(7 * 3_600_000);
  expect(aheadMs).toBeLessThanOrEqual(8 * 3_600_000);
  expect(await viv("ls", "--state", "paused")).toMatch(new RegExp(`^${id} .*wakes in 7h\\d+m$`, "m"));

  expect(await inside(id, "cat note")).toBe("kept");
  expect(JSON.parse(await viv("get", "--json", id))).toMatchObject({ state: "live" });
  const after = await countIn(id);
  expect(after).toBeGreaterThanOrEqual(before);
  // The process itself continues, from the number in its memory.
  await eventually(async () => expect(await countIn(id)).toBeGreaterThan(after));

  await viv("pause", id);
  const { code, out, err } = await startViv("resume", "--timing", id).ended;
  expect({ code, out }).toEqual({ code: 0, out: `${id}\n` });
  expect(err).toMatch(/^viv: .*\bload \d+ ms.*\bhandshake \d+ ms/);
  expect(await viv("resume", id)).toBe(id);
  await viv("rm", id);
});
