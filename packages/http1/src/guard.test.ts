import { EventEmitter } from "node:events";
import { describe, expect, test } from "vitest";
import { guarded } from "./guard.ts";

const logged: unknown[] = [];
const log = { error: (fields: unknown) => void logged.push(fields) };
const broken = (..._: unknown[]) => {
  throw new Error("broken");
};

describe("a handler that throws", () => {
  test("ends its own connection, is logged, and does not reach its caller", () => {
    const ended: string[] = [];
    const server = new EventEmitter();
    server.on(
      "connection",
      guarded(log, broken, (name: string) => ended.push(name)),
    );
    server.emit("connection", "first");
    server.emit("connection", "second");
    expect(ended).toEqual(["first", "second"]);
    expect(logged).toEqual([{ err: new Error("broken") }, { err: new Error("broken") }]);
  });

  test("is ended in the first way that works, and in no other", () => {
    const tried: string[] = [];
    const say = (name: string) => () => void tried.push(name);
    guarded(log, broken, broken, say("second"), say("third"))();
    expect(tried).toEqual(["second"]);
    expect(guarded(log, broken, broken)).not.toThrow();
  });
});

test("a handler that does not throw is only called", () => {
  const heard: unknown[] = [];
  const hear = (...words: string[]) => void heard.push(...words);
  const end = (..._: string[]) => void heard.push("ended");
  guarded(log, hear, end)("a", "b");
  expect(heard).toEqual(["a", "b"]);
});
