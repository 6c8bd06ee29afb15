import { expect, test } from "vitest";
import { QuestionRateLimit } from "./question-rate-limit.ts";

const takeMany = (brake: QuestionRateLimit, count: number, now: number) =>
  Array.from({ length: count }, () => brake.take(now));

test("200 questions go at once, and each one after these a fiftieth of a second after the one before", () => {
  const brake = new QuestionRateLimit();
  expect(new Set(takeMany(brake, 200, 1_000))).toEqual(new Set([0]));
  expect(takeMany(brake, 3, 1_000)).toEqual([20, 40, 60]);
  expect(takeMany(brake, 2, 1_060)).toEqual([20, 40]);
});

test("a time without questions brings 50 a second back, and never more than 200", () => {
  const brake = new QuestionRateLimit();
  takeMany(brake, 200, 0);
  expect(takeMany(brake, 51, 1_000)).toEqual([...Array(50).fill(0), 20]);
  expect(takeMany(brake, 201, 3_600_000)).toEqual([...Array(200).fill(0), 20]);
});
