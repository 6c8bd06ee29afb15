/** The certificates that guests trust stay as chosen, although `./viv` runs set-up without options. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

const PEM = (body: string) => `-----BEGIN CERTIFICATE-----\n${body}\n-----END CERTIFICATE-----\n`;

let folder: string;
let dataDir: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "ca-bundle-"));
  dataDir = join(folder, "data");
  file = join(folder, "company.pem");
  writeFileSync(file, PEM("first"));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** As in set-up, with `--ca-bundle` or without. */
function collect(choice = "", env: Record<string, string> = {}): string {
  const script = `
    set -euo pipefail
    fail() { echo "$1" >&2; exit 1; }
    DATA_DIR=$1 CACHE_DIR=$2 CA_BUNDLE=$3
    . scripts/setup/fingerprint.sh
    . scripts/setup/images.sh
    collect_certificates
    cat "$CERTIFICATES"`;
  return execFileSync("bash", ["-c", script, "bash", dataDir, join(folder, "cache"), choice], {
    encoding: "utf8",
    env: { PATH: process.env.PATH, ...env },
    stdio: "pipe",
  });
}

function fingerprint(env: Record<string, string> = {}): string {
  const script = '. scripts/setup/fingerprint.sh; fingerprint "$1"';
  return execFileSync("bash", ["-c", script, "bash", dataDir], {
    encoding: "utf8",
    env: { PATH: process.env.PATH, ...env },
    stdio: ["ignore", "pipe", "ignore"],
  });
}

test("a file that was chosen once is taken by every later set-up, renewed or gone", () => {
  expect(collect(file)).toBe(PEM("first"));
  expect(collect()).toBe(PEM("first"));
  const before = fingerprint();
  writeFileSync(file, PEM("renewed"));
  expect(fingerprint()).not.toBe(before);
  expect(collect()).toBe(PEM("renewed"));
  rmSync(file);
  expect(collect()).toBe(PEM("renewed"));
});

test("another choice replaces it, also by VIV_CA_BUNDLE, which set-up is due for", () => {
  collect(file);
  const before = fingerprint();
  const other = join(folder, "other.pem");
  writeFileSync(other, PEM("other"));
  expect(fingerprint({ VIV_CA_BUNDLE: other })).not.toBe(before);
  expect(collect("", { VIV_CA_BUNDLE: other })).toBe(PEM("other"));
  expect(collect()).toBe(PEM("other"));
  expect(collect("none")).toBe("");
  expect(collect()).toBe("");
});

test("a file without a certificate, or a missing one, is refused, and the earlier choice stays", () => {
  collect(file);
  const empty = join(folder, "empty.pem");
  writeFileSync(empty, "nothing");
  for (const wrong of [empty, join(folder, "absent.pem")])
    expect(() => collect(wrong)).toThrow(/holds no certificate/);
  expect(collect()).toBe(PEM("first"));
});
