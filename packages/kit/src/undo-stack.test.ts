import { expect, test } from "vitest";
import { UndoStack } from "./undo-stack.ts";

function recorded(...names: string[]) {
  const done: string[] = [];
  const undo = new UndoStack();
  for (const name of names) undo.push(name, () => done.push(name));
  return { undo, done };
}

test("undoes in reverse order, each step once", async () => {
  const { undo, done } = recorded("first", "second", "third");
  await undo.unwind();
  await undo.unwind();
  expect(done).toEqual(["third", "second", "first"]);
});

test("forgets everything once the work succeeded", async () => {
  const { undo, done } = recorded("first");
  undo.release();
  await undo.unwind();
  expect(done).toEqual([]);
});

test("waits for each release before the next", async () => {
  const { undo, done } = recorded("first");
  undo.push("slow", async () => {
    await new Promise((resolve) => setTimeout(resolve, 20));
    done.push("slow");
  });
  await undo.unwind();
  expect(done).toEqual(["slow", "first"]);
});

test("runs every release although some fail, and reports all failures by name", async () => {
  const { undo, done } = recorded("first");
  undo.push("mount", () => {
    throw new Error("busy");
  });
  undo.push("uid", () => Promise.reject(new Error("in use")));
  const failure = await undo.unwind().then(
    () => undefined,
    (error: unknown) => error as AggregateError,
  );
  expect(done).toEqual(["first"]);
  expect(failure?.errors.map((error: Error) => error.message)).toEqual([
    'undo of "uid" failed: in use',
    'undo of "mount" failed: busy',
  ]);
  expect(failure?.errors[1].cause).toEqual(new Error("busy"));
});
