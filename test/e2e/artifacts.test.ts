/** Artifacts of a real machine: captured from its guest, on request and at its end, byte for byte. */
import { createHash } from "node:crypto";
import type { Artifact } from "@vivarium/sdk";
import { expect, test } from "vitest";
import { client, sh } from "../support/http.ts";

const LONG_MS = 600_000;

/** The sums of an artifact's files, by their paths. */
async function sumsOf({ files = [] }: Artifact): Promise<Record<string, string>> {
  const sums: Record<string, string> = {};
  for (const file of files) {
    const hash = createHash("sha256");
    for await (const chunk of client.artifacts.download(file)) hash.update(chunk);
    sums[file.path] = hash.digest("hex");
  }
  return sums;
}

/** Makes files in the guest, and returns their sums as the guest computes them. */
async function makeFiles(id: string, dir: string): Promise<Record<string, string>> {
  const script = `mkdir -p ${dir}/deep && cd ${dir} && head -c 9000000 /dev/urandom > big.bin && : > empty &&
    echo hello > deep/a.txt && ln -s /etc/passwd link && ln -s deep to-deep && mkfifo fifo && cd .. &&
    find ${dir} -type f -exec sha256sum {} +`;
  const { stdout } = await client.sessions.exec(id, { command: sh(script), timeout_ms: 120_000 });
  return Object.fromEntries(
    stdout
      .trim()
      .split("\n")
      .map((line) => line.split("  ").toReversed()),
  );
}

test("files of a live session are captured as they are, without links and FIFOs", {
  timeout: LONG_MS,
}, async () => {
  const { session_id: id } = await client.sessions.create();
  await client.sessions.waitUntilLive(id);
  const made = await makeFiles(id, "out");
  const { artifacts } = client.session(id);
  const pending = await artifacts.capture(["out", "none"]);
  expect(pending.status).toBe("pending");
  const ready = await client.artifacts.waitUntilReady(pending.id);
  expect(await sumsOf(ready)).toEqual(made);
  const big = ready.files?.find(({ path }) => path === "out/big.bin");
  expect(big?.size_bytes).toBe(9_000_000);
  await client.sessions.delete(id);
  expect((await artifacts.list()).artifacts.map((one) => one.id)).toEqual([pending.id]);
  await client.artifacts.delete(pending.id);
});

test("what a create keeps is captured when its session is destroyed", { timeout: LONG_MS }, async () => {
  const { session_id: id } = await client.sessions.create({ artifacts: { paths: ["out/**"] } });
  await client.sessions.waitUntilLive(id);
  const made = await makeFiles(id, "out");
  await client.sessions.delete(id);
  const [{ id: aid = "" } = {}] = (await client.session(id).artifacts.list()).artifacts;
  expect(await sumsOf(await client.artifacts.waitUntilReady(aid))).toEqual(made);
  await client.artifacts.delete(aid);
});
