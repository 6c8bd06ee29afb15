import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { Finding } from "./finding.ts";

const MAIN = path.join(import.meta.dirname, "../main.ts");

test("a check that may not run is unknown, not a lack of the host", async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), "viv-doctor-"));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  await mkdir(path.join(dataDir, "pool"));
  await chmod(path.join(dataDir, "pool"), 0o500);
  // Root without its capabilities: it may still read the sources, wherever they lie.
  const doctor = ["--inh-caps=-all", "--bounding-set=-all", process.execPath, MAIN, "doctor", "--json"];
  const json = await new Promise<string>((resolve) =>
    execFile("/usr/bin/setpriv", [...doctor, "--data-dir", dataDir], (_code, stdout) => resolve(stdout)),
  );
  const { checks } = JSON.parse(json) as { checks: Finding[] };
  const found = checks.filter(({ name }) => ["reflink", "nft"].includes(name));
  const unknown = {
    status: "warn",
    cost: expect.stringMatching(/^unknown/),
    remedy: "Run viv doctor as root.",
  };
  expect(found).toEqual([expect.objectContaining(unknown), expect.objectContaining(unknown)]);
});
