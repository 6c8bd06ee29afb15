import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { checkNetworkTable, isMissing, judgeNetworkTable } from "./network-table.ts";

test("a table that is gone while the service runs is a finding, with where to read why it does not come back", () => {
  const finding = judgeNetworkTable({ isServing: true, isMissing: true });
  expect(finding).toMatchObject({ status: "warn", remedy: expect.stringContaining("node.log") });
});

test("without a service no table is needed; with both all is well", () => {
  expect(judgeNetworkTable({ isServing: false, isMissing: true }).status).toBe("ok");
  expect(judgeNetworkTable({ isServing: true, isMissing: false }).status).toBe("ok");
});

test("a data directory that nothing serves has no finding, whatever tables this host has", async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), "viv-doctor-"));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  expect((await checkNetworkTable(dataDir)).status).toBe("ok");
});

test("a table is missing only if nft says so", async () => {
  const script =
    "nft -t list table inet vivarium 2>&1; nft add table inet vivarium; nft -t list table inet vivarium";
  const { stdout } = await promisify(execFile)("unshare", ["--net", "sh", "-c", script]);
  expect(isMissing({ code: 1, stderr: stdout })).toBe(true);
  expect(stdout).toMatch(/table inet vivarium \{\s+\}\s*$/);
  expect(isMissing({ code: 1, stderr: "Operation not permitted" })).toBe(false);
});
