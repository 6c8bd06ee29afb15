import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isDue } from "./keep.ts";

const DAY_MS = 24 * 3600_000;

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "previews-acme-"));
});

afterAll(() => rmSync(folder, { recursive: true }));

const files = (name: string) => ({
  certFile: join(folder, `${name}.crt`),
  keyFile: join(folder, `${name}.key`),
});

function makePair(name: string, days: number) {
  const { certFile, keyFile } = files(name);
  const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", String(days)];
  execFileSync("openssl", ["req", "-x509", ...kind, "-subj", "/CN=x", "-keyout", keyFile, "-out", certFile], {
    stdio: "ignore",
  });
  return { certFile, keyFile };
}

test("a certificate is due when less than a third of its life is left", () => {
  const pair = makePair("ninety", 90);
  expect(isDue(pair, Date.now())).toBe(false);
  expect(isDue(pair, Date.now() + 59 * DAY_MS)).toBe(false);
  expect(isDue(pair, Date.now() + 61 * DAY_MS)).toBe(true);
  expect(isDue(pair, Date.now() + 100 * DAY_MS)).toBe(true);
});

test("a pair that is missing, unreadable or not a pair is due", () => {
  const good = makePair("good", 90);
  const other = makePair("other", 90);
  expect(isDue(files("missing"), Date.now())).toBe(true);
  expect(isDue({ ...good, keyFile: other.keyFile }, Date.now())).toBe(true);
  writeFileSync(other.certFile, "no certificate");
  expect(isDue(other, Date.now())).toBe(true);
});
