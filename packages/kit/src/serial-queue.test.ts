import { expect, it } from "vitest";
import { sleep } from "./clock.ts";
import { SerialQueue } from "./serial-queue.ts";

it("runs one work at a time, in the order of the calls, also after one that fails", async () => {
  const queue = new SerialQueue();
  const seen: string[] = [];
  const work = (name: string, ms: number) => async () => {
    seen.push(`${name} begins`);
    await sleep(ms);
    seen.push(`${name} ends`);
    if (name === "second") throw new Error("the second fails");
    return name;
  };
  const [first, second, third] = [
    queue.run(work("first", 20)),
    queue.run(work("second", 5)),
    queue.run(work("third", 0)),
  ];
  await expect(second).rejects.toThrow("the second fails");
  expect([await first, await third]).toEqual(["first", "third"]);
  const names = ["first", "second", "third"];
  expect(seen).toEqual(names.flatMap((name) => [`${name} begins`, `${name} ends`]));
});
