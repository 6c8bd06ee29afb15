import { appendFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { BuildLog as Lines } from "@vivarium/contract/node";
import { afterEach, beforeEach, expect, it } from "vitest";
import { BuildLog } from "./build-log.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "log-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const textsOf = ({ lines }: BuildLog) => Lines.parse({ lines }).lines.map(({ text }) => text);

it("outlives its process, without a line that was cut off", async () => {
  const log = await BuildLog.open(dir);
  log.add("one");
  log.add("two\nlines\u001b[31m");
  await log.flush();
  await appendFile(path.join(dir, "log"), '{"at":"2026');
  const next = await BuildLog.open(dir);
  expect(textsOf(next)).toEqual(["one", "two lines [31m"]);
  next.add("three");
  await next.flush();
  expect(textsOf(await BuildLog.open(dir))).toEqual(["one", "two lines [31m", "three"]);
});

it("keeps the newest lines, and a part of a long one", async () => {
  const log = await BuildLog.open(dir);
  for (let number = 0; number < 1_100; number++) log.add(`line ${number}`);
  log.add("x".repeat(10_000));
  await log.flush();
  for (const one of [log, await BuildLog.open(dir)]) {
    const texts = textsOf(one);
    expect([texts.length, texts[0], texts.at(-1)]).toEqual([1_000, "line 101", "x".repeat(500)]);
  }
  expect((await readFile(path.join(dir, "log"), "utf8")).split("\n")).toHaveLength(1_001);
});
