import { afterAll, expect, test } from "vitest";
import { startViv, viv } from "../support/command-line.ts";
import { eventually } from "../support/eventually.ts";
import { client } from "../support/http.ts";

/** Objects that the tests make, deleted at the end. */
const made = { sessions: [] as string[], checkpoints: [] as string[] };
const keep = (kind: keyof typeof made, id: string) => {
  made[kind].push(id);
  return id;
};
const inside = (id: string, script: string) => viv("exec", id, "--", "sh", "-c", script);
const create = async (...options: string[]) => keep("sessions", await viv("create", "--wait", ...options));

afterAll(async () => {
  await Promise.all(made.sessions.map((id) => client.sessions.delete(id).catch(() => {})));
  await Promise.all(made.checkpoints.map((id) => client.checkpoints.delete(id).catch(() => {})));
});

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

test("a checkpoint can be gone back to, started from, and outlives its session; the tree shows it all", async () => {
  const id = await create("--name", "tree-of-life");
  await inside(id, "echo one > note");
  const checkpoint = keep("checkpoints", await viv("checkpoint", "create", "--name", "one", id));
  expect(checkpoint).toMatch(/^chk_[a-z0-9]{21}$/);
  await inside(id, "echo two > note; touch later");
  expect(await viv("restore", id, "one")).toBe(id);
  expect(await inside(id, "cat note; test -e later && echo later; true")).toBe("one");

  const started = keep("sessions", await viv("checkpoint", "start", "--name", "offspring", checkpoint));
  expect(await inside(started, "cat note")).toBe("one");
  const [child = ""] = (await viv("fork", id)).split("\n");
  keep("sessions", child);

  const lines = (await viv("tree", id)).split("\n");
  expect(lines[0]).toMatch(/^ID +KIND +STATE +SIZE +AGE +NAME$/);
  expect(lines[1]).toMatch(new RegExp(`^${id} +session +live +small +\\w+ +tree-of-life$`));
  expect(lines[2]).toMatch(new RegExp(`^├─ ${checkpoint} +checkpoint +[\\d.]+ [KMG]?i?B +\\w+ +one$`));
  expect(lines).toContainEqual(expect.stringMatching(new RegExp(`^└─ ${child} +fork +live +small`)));

  await viv("rm", id);
  const listed = JSON.parse(await viv("checkpoint", "ls", "--json"));
  expect(listed.checkpoints).toContainEqual(
    expect.objectContaining({ checkpoint_id: checkpoint, parent_session_id: id, name: "one" }),
  );
  expect(await viv("tree", checkpoint)).toMatch(new RegExp(`^${id} +session +ended .*client_destroy$`, "m"));
  const again = keep("sessions", await viv("create", "--wait", "--from-checkpoint", checkpoint));
  expect(await inside(again, "cat note")).toBe("one");

  expect(await viv("checkpoint", "rm", checkpoint)).toBe(checkpoint);
  expect(await inside(started, "cat note")).toBe("one");
  const gone = await startViv("checkpoint", "start", checkpoint).ended;
  expect(gone).toMatchObject({ code: 1, out: "", err: expect.stringContaining("viv checkpoint ls") });
  await viv("rm", started, again, child);
});
