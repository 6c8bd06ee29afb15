import { expect, test } from "vitest";
import { partingLine } from "./parting.ts";

const line = (
  on_pty_detach: "pause" | "keep_live" | "destroy" | undefined,
  how: "left" | "exited",
  name?: string,
) => partingLine({ session_id: "s1", on_pty_detach }, how === "left" ? { how } : { how, code: 0 }, name);

test("a human who leaves reads how to come back", () => {
  expect(line("keep_live", "left", "shell")).toMatch(/come back with: viv shell s1$/);
  expect(line("keep_live", "left", "editor")).toMatch(/viv shell --terminal editor s1$/);
  expect(line("keep_live", "left")).toContain("is ended");
});

test.each(["left", "exited"] as const)("what becomes of the session is said to who has %s", (how) => {
  expect(line("pause", how, "shell")).toContain("is paused in a moment");
  expect(line(undefined, how, "shell")).toContain("is paused in a moment");
  expect(line("destroy", how, "shell")).toContain("ends in a moment");
});

test("there is nothing to say of a shell that has ended in a session that stays", () => {
  expect(line("keep_live", "exited", "shell")).toBeUndefined();
});
