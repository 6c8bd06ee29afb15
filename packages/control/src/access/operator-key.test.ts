/** The file of the operator's key: made once, and refused if no request could ever be accepted with it. */
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { digestOfOperatorKey, loadOperatorKey } from "./operator-key.ts";

function folder(): string {
  const dir = mkdtempSync(path.join(tmpdir(), "operator-"));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

test("processes that start together load one key, which only its owner can read", async () => {
  const dir = folder();
  const file = path.join(dir, "operator.key");
  const digests = await Promise.all([1, 2, 3].map(() => loadOperatorKey(dir)));
  const digest = digestOfOperatorKey(readFileSync(file, "utf8").trim());
  expect(digests).toEqual([digest, digest, digest]);
  expect(statSync(file).mode & 0o777).toBe(0o600);
});

test.each([
  ["nothing", "", /is empty/],
  ["an API key", "viv_abc\n", /does not contain an operator's key/],
  ["two lines", "viv_op_abc\nviv_op_def\n", /does not contain an operator's key/],
  ["more than a request can have", `viv_op_${"x".repeat(100)}\n`, /does not contain an operator's key/],
])("a file with %s is refused, and left as it is", async (_what, text, message) => {
  const dir = folder();
  const file = path.join(dir, "operator.key");
  writeFileSync(file, text, { mode: 0o600 });
  await expect(loadOperatorKey(dir)).rejects.toThrow(message);
  expect(readFileSync(file, "utf8")).toBe(text);
});
