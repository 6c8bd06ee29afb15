import { expect, test } from "vitest";
import { startViv, viv } from "../support/command-line.ts";
import { create, deleteMadeAtEnd, inside, keep } from "../support/made-by-viv.ts";

deleteMadeAtEnd();

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
