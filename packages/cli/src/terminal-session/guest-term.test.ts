import { expect, test } from "vitest";
import { guestTerm } from "./guest-term.ts";

test.each([
  ["xterm-256color", "xterm-256color"],
  ["tmux-256color", "tmux-256color"],
  ["linux", "linux"],
  ["xterm-kitty", "xterm-256color"],
  ["alacritty", "xterm-256color"],
  ["bad; value", "xterm-256color"],
  [undefined, "xterm-256color"],
])("on %s, programs in a session draw for %s", (term, expected) => {
  expect(guestTerm({ term, colorterm: "truecolor" })).toEqual({ term: expected, colorterm: "truecolor" });
});

test("a COLORTERM that the service would refuse is left out", () => {
  expect(guestTerm({ term: "linux", colorterm: "a b" }).colorterm).toBeUndefined();
});
