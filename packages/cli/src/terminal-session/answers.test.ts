import { expect, test } from "vitest";
import { withoutAnswers } from "./answers.ts";

const without = (text: string) => withoutAnswers(Buffer.from(text, "latin1")).toString("latin1");

test.each([
  ["what kind it is", "\u001b[?62;22c"],
  ["its version", "\u001b[>41;354;0c"],
  ["where the cursor is", "\u001b[24;80R"],
  ["that it is well", "\u001b[0n"],
  ["whether a mode is set", "\u001b[?2026;2$y"],
  ["its background", "\u001b]11;rgb:0000/0000/0000\u0007"],
  ["a setting", "\u001bP1$r0m\u001b\\"],
])("an answer with %s is taken out", (_title, answer) => {
  expect(without(`a${answer}b`)).toBe("ab");
});

test.each(["\u001b[A", "\u001b[1;5C", "\u001bOP", "\u001b[200~text\u001b[201~", "\u001b", "ls\r", "é\u0003"])(
  "what a human types stays: %j",
  (text) => expect(without(text)).toBe(text),
);
