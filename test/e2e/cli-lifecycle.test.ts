import { afterAll, expect, test } from "vitest";
import { startViv, viv } from "../support/command-line.ts";
import { eventually } from "../support/eventually.ts";
import { client } from "../support/http.ts";

/** What the tests make, for the end. */
const made = { sessions: [] as string[], checkpoints: [] as string[], templates: [] as string[] };
const keep = (kind: keyof typeof made, id: string) => {
  made[kind].push(id);
  return id;
};
const inside = (id: string, script: string) => viv("exec", id, "--", "sh", "-c", script);
const create = async (...options: string[]) => keep("sessions", await viv("create", "--wait", ...options));

afterAll(async () => {
  await Promise.all(made.sessions.map((id) => client.sessions.delete(id).catch(() => {})));
  await Promise.all(made.checkpoints.map((id) => client.checkpoints.delete(id).catch(() => {})));
  await Promise.all(made.templates.map((name) => client.templates.delete(name).catch(() => {})));
});

/** A process that counts in its own memory, and writes how far it is: added, so that the file is never empty in between. */
const COUNTER = "(n=0; while :; do n=$((n+1)); echo $n >> count; sleep 0.2; done) > /dev/null 2>&1 &";
const countIn = async (id: string) => Number(await inside(id, "tail -n1 count"));

test("a paused session keeps files and processes, and the next exec wakes it", async () => {
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
  // The process itself goes on, from the number in its memory.
  await eventually(async () => expect(await countIn(id)).toBeGreaterThan(after));
  await viv("rm", id);
});

test("resume wakes ahead of the next command and tells where the time went", async () => {
  const id = await create();
  await viv("pause", id);
  const { code, out, err } = await startViv("resume", "--timing", id).ended;
  expect({ code, out }).toEqual({ code: 0, out: `${id}\n` });
  expect(err).toMatch(/^viv: .*\bload \d+ ms.*\bhandshake \d+ ms/);
  expect(await viv("resume", id)).toBe(id);
  await viv("rm", id);
});

test("forks go on from the same instant, each on its own", async () => {
  const parent = await create("--label", "job=42", "--env", "GREETING=hello");
  await inside(parent, "echo before > note");
  const children = (await viv("fork", "--count", "2", parent)).split("\n");
  for (const child of children) keep("sessions", child);
  expect(new Set([parent, ...children]).size).toBe(3);
  const read = `cat note; echo "$GREETING"`;
  for (const child of children) expect(await inside(child, read)).toBe("before\nhello");
  await inside(children[0] as string, "echo mine > note");
  expect(await inside(children[1] as string, "cat note")).toBe("before");
  expect(await inside(parent, "cat note")).toBe("before");
  const record = JSON.parse(await viv("get", "--json", children[0] as string));
  expect(record).toMatchObject({ state: "live", parent_session_id: parent, labels: { job: "42" } });
  await viv("rm", parent, ...children);
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

test("a session saved as a template is what others start from, by name and by version", async () => {
  const id = await create();
  await inside(id, "echo tools > installed");
  const name = keep("templates", `tools-${id.slice(0, 8)}`);
  expect(await viv("template", "save", id, name)).toBe(`${name}@1`);
  await inside(id, "echo more >> installed");
  expect(await viv("template", "save", id, name)).toBe(`${name}@2`);
  expect(await viv("template", "ls")).toMatch(new RegExp(`^${name} +user +ready +2 1 `, "m"));
  await viv("rm", id);

  const newest = await create("--template", name);
  expect(await inside(newest, "cat installed")).toBe("tools\nmore");
  const pinned = await create("--template", `${name}@1`);
  expect(await inside(pinned, "cat installed")).toBe("tools");
  expect(await viv("template", "rm", name)).toBe(name);
  expect(await inside(pinned, "cat installed")).toBe("tools");
  await viv("rm", newest, pinned);
});

test("a session idle for its time is paused, and watch tells every change until Ctrl-C", async () => {
  const watch = startViv("watch", "--json", "--interval", "200ms");
  let printed = "";
  watch.stdout?.on("data", (chunk: Buffer) => {
    printed += chunk.toString();
  });
  const moves = (id: string) =>
    printed
      .split("\n")
      .filter((line) => line.includes(id))
      .map((line) => JSON.parse(line))
      .map(({ from, to }) => (from === undefined ? to : `${from} -> ${to}`));
  try {
    const id = await create("--idle-timeout", "5s");
    await eventually(() => expect(moves(id)).toContain("live -> paused"), 60_000);
    expect(await inside(id, "echo awake")).toBe("awake");
    await eventually(() => expect(moves(id)).toContain("paused -> live"), 20_000);
    await viv("rm", id);
    await eventually(() => expect(moves(id).at(-1)).toMatch(/ -> ended$/), 20_000);
  } finally {
    watch.kill("SIGINT");
  }
  expect(await watch.ended).toMatchObject({ code: 0, err: "" });
});

test("what cannot be is refused with a sentence and the way out", async () => {
  const id = await create();
  const refused = async (...argv: string[]) => {
    const { code, out, err } = await startViv(...argv).ended;
    expect({ code, out }).toEqual({ code: 1, out: "" });
    return err;
  };
  expect(await refused("fork", "--count", "17", id)).toContain("count");
  expect(await refused("pause", "--wake-at", "91d", id)).toContain("wake_at");
  expect(await refused("pause", "--wake-at", "2020-01-01T00:00:00Z", id)).toContain("wake_at");
  expect(await refused("restore", id, "nothing")).toContain("not_found");
  expect(await refused("create", "--max-lifetime", "1h", "--paused-ttl", "never")).toContain("paused_ttl_ms");
  expect(await viv("get", "--json", id)).toContain('"state":"live"');
  await viv("rm", id);
  for (const verb of ["pause", "resume", "fork"]) expect(await refused(verb, id)).toContain("not_found");
});
