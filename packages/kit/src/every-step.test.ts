import { expect, test } from "vitest";
import { everyStep } from "./every-step.ts";

test("runs the steps in their order, each after the end of the one before", async () => {
  const done: string[] = [];
  const slow = async () => {
    await new Promise((resolve) => setTimeout(resolve, 20));
    done.push("slow");
  };
  await everyStep([
    { name: "slow", run: slow },
    { name: "quick", run: () => done.push("quick") },
  ]);
  expect(done).toEqual(["slow", "quick"]);
});

test("runs every step although some fail, and names all that failed with the reason", async () => {
  const done: string[] = [];
  const steps = [
    { name: "mount", run: () => Promise.reject(new Error("busy")) },
    { name: "folder", run: () => done.push("folder") },
    {
      name: "group",
      run: () => {
        throw new Error("populated");
      },
    },
  ];
  const failure = await everyStep(steps).then(
    () => undefined,
    (error: unknown) => error as AggregateError,
  );
  expect(done).toEqual(["folder"]);
  expect(failure?.message).toBe("mount failed: busy; group failed: populated");
  expect(failure?.errors[0].cause).toEqual(new Error("busy"));
});
