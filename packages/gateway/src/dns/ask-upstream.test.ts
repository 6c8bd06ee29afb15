import { expect, test } from "vitest";
import { answerLimitMs, askUpstream } from "./ask-upstream.ts";
import { TYPE, writeQuestion } from "./question.ts";

// Without leave no socket is connected to everybody; a host that lost its way to the outside refuses in the same way.
test("a name server that nothing can be sent to is one that does not answer, and ends nothing else", async () => {
  const question = writeQuestion("a.example", TYPE.A);
  await expect(askUpstream(["255.255.255.255"], question)).rejects.toThrow("no name server gave an answer");
});

test("an answer is waited for less than the 5 seconds after which most programs ask again", () => {
  expect(answerLimitMs()).toBeLessThan(5_000);
});
