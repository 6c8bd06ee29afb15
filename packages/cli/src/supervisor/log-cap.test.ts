import { appendFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { capLogs } from "./log-cap.ts";

test("moves logs over the cap aside, while writers keep the same file", async () => {
  const dir = await mkdtemp(path.join(tmpdir(), "viv-logs-"));
  const file = (name: string) => path.join(dir, name);
  await writeFile(file("big.log"), "x".repeat(101));
  await writeFile(file("small.log"), "y");
  await capLogs(dir, 100);
  await appendFile(file("big.log"), "after");
  expect(await readFile(file("big.log"), "utf8")).toBe("after");
  expect(await readFile(file("big.log.1"), "utf8")).toHaveLength(101);
  expect(await readFile(file("small.log"), "utf8")).toBe("y");
  await rm(dir, { recursive: true });
});
