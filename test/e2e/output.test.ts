/** Output of commands in a real machine: whole, in order, cut at the documented limits, and never kept as a whole. */
import { createHash } from "node:crypto";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { residentBytes } from "../support/host-processes.ts";
import { client, service, sh } from "../support/http.ts";
import { servicePid } from "../support/service.ts";

const MIB = 1024 * 1024;
const GROWTH_MIB = 64;
/** Hazard: the whole output in memory. Memory would grow by more than this. */
const LARGE_MB = size({ ci: 80, full: 200 });

let id: string;
beforeAll(async () => {
  ({ session_id: id } = await client.sessions.create());
  await client.sessions.waitUntilLive(id);
});
afterAll(() => client.sessions.delete(id));

describe("streamed output", () => {
  test("arrives line by line, as the command writes it", async () => {
    const arrivals: string[] = [];
    // Each line waits until the line before it has arrived.
    const command = sh("for i in 1 2 3; do echo $i; until [ -e seen-$i ]; do sleep 0.1; done; done");
    let exit: unknown;
    for await (const event of client.sessions.execStream(id, { command })) {
      if (event.type === "exit") {
        exit = event.data;
        continue;
      }
      const line = Buffer.from(event.data).toString();
      arrivals.push(line);
      await client.sessions.exec(id, { command: ["touch", `seen-${line.trim()}`] });
    }
    expect(arrivals).toEqual(["1\n", "2\n", "3\n"]);
    expect(exit).toMatchObject({ exit_code: 0, timed_out: false });
  });

  test("has the wire form: one event line, one data line", async () => {
    const response = await fetch(`${service.url}/v1/sessions/${id}/exec?stream=true`, {
      method: "POST",
      headers: { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" },
      body: JSON.stringify({ command: sh("echo out; echo err >&2; exit 5") }),
    });
    expect(response.headers.get("content-type")).toMatch(/^text\/event-stream/);
    expect(response.headers.get("x-accel-buffering")).toBe("no");
    const blocks = (await response.text()).split("\n\n").filter((block) => block !== "");
    const events = blocks.filter((block) => !block.startsWith(":"));
    for (const block of events) expect(block).toMatch(/^event: (stdout|stderr|exit)\ndata: [^\n]*$/);
    expect(events).toContain(`event: stdout\ndata: ${btoa("out\n")}`);
    expect(events).toContain(`event: stderr\ndata: ${btoa("err\n")}`);
    expect(events.at(-1)).toMatch(
      /^event: exit\ndata: \{"exit_code":5,"timed_out":false,"duration_ms":\d+\}$/,
    );
  });

  test(`of ${LARGE_MB} MB arrives whole while the server's memory stays flat`, {
    timeout: 600_000 * SLOWNESS,
  }, async () => {
    const line = "The quick brown fox jumps over the lazy dog, 0123456789.".repeat(18);
    const bytes = LARGE_MB * 1000 * 1000;
    await drain(line, 8 * MIB);
    const pids = [servicePid(service, "control"), servicePid(service, "node")];
    const before = pids.map(residentBytes);
    const peak = [...before];
    const sampler = setInterval(() => {
      for (const [i, pid] of pids.entries()) peak[i] = Math.max(peak[i] ?? 0, residentBytes(pid));
    }, 200);
    const startedAt = Date.now();
    const got = await drain(line, bytes).finally(() => clearInterval(sampler));
    expect(got.bytes).toBe(bytes);
    expect(got.hash).toBe(expectedHash(line, bytes));
    expect(got.exit).toMatchObject({ exit_code: 0, timed_out: false });
    const growth = peak.map((value, i) => value - (before[i] ?? 0));
    console.log(
      `${LARGE_MB} MB in ${Date.now() - startedAt} ms; growth MiB: ${growth.map((g) => Math.round(g / MIB))}`,
    );
    for (const each of growth) expect(each).toBeLessThan(GROWTH_MIB * MIB);
  });
});

test("a silent command whose client leaves counts as the one command of a session that may have only one", async () => {
  const session = await client.sessions.create({ destroy_on_completion: true });
  await client.sessions.waitUntilLive(session.session_id);
  const gone = new AbortController();
  // Answered as soon as the command runs.
  const answer = await fetch(`${service.url}/v1/sessions/${session.session_id}/exec?stream=true`, {
    method: "POST",
    headers: { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" },
    body: JSON.stringify({ command: ["sleep", "600"], timeout_ms: 700_000 }),
    signal: gone.signal,
  });
  expect(answer.status).toBe(200);
  gone.abort();
  await eventually(async () => {
    await expect(client.sessions.get(session.session_id)).rejects.toMatchObject({ code: "not_found" });
  });
});

describe("buffered output", () => {
  test("past 4 MiB is cut, and the command runs on to its end", async () => {
    const command = sh("head -c 6000000 /dev/zero | tr '\\0' a; touch ran-on; echo done >&2");
    const cut = await client.sessions.exec(id, { command, timeout_ms: 120_000 });
    expect(cut).toMatchObject({ truncated: true, stderr: "done\n", exit_code: 0, timed_out: false });
    expect(cut.stdout).toBe("a".repeat(4 * MIB));
    const after = await client.sessions.exec(id, { command: ["test", "-e", "ran-on"] });
    expect(after.exit_code).toBe(0);
    expect(after).not.toHaveProperty("truncated");
  });

  test("is cut before a character that would be split", async () => {
    const command = ["python3", "-c", "import sys; sys.stdout.write('a' + '€' * 1500000)"];
    const cut = await client.sessions.exec(id, { command, timeout_ms: 120_000 });
    expect(cut.truncated).toBe(true);
    expect(cut).not.toHaveProperty("stdout_encoding");
    expect(cut.stdout).toBe(`a${"€".repeat(Math.floor((4 * MIB - 1) / 3))}`);
  });

  test("that is not UTF-8 comes as base64, stream by stream", async () => {
    const command = sh("printf '\\377\\000\\376'; echo plain >&2");
    const exec = await client.sessions.exec(id, { command });
    expect(exec.stdout_encoding).toBe("base64");
    expect([...Buffer.from(exec.stdout, "base64")]).toEqual([0xff, 0x00, 0xfe]);
    expect(exec.stderr).toBe("plain\n");
    expect(exec).not.toHaveProperty("stderr_encoding");
  });

  test("outlives the client that asked for it", async () => {
    const gone = new AbortController();
    const isThere = (file: string) =>
      eventually(async () => {
        const there = await client.sessions.exec(id, { command: ["test", "-e", file] });
        expect(there.exit_code).toBe(0);
      });
    const command = sh("touch begun; until [ -e go ]; do sleep 0.1; done; touch finished");
    const exec = client.sessions.exec(id, { command, timeout_ms: 120_000 }, { signal: gone.signal });
    const left = expect(exec).rejects.toThrow();
    await isThere("begun");
    gone.abort();
    await left;
    await client.sessions.exec(id, { command: ["touch", "go"] });
    await isThere("finished");
  });
});

async function drain(line: string, bytes: number) {
  const hash = createHash("sha256");
  let count = 0;
  let exit: unknown;
  const request = { command: sh(`yes '${line}' | head -c ${bytes}`), timeout_ms: 540_000 };
  for await (const event of client.sessions.execStream(id, request)) {
    if (event.type === "exit") exit = event.data;
    if (event.type !== "stdout") continue;
    hash.update(event.data);
    count += event.data.length;
  }
  return { bytes: count, hash: hash.digest("hex"), exit };
}

function expectedHash(line: string, bytes: number): string {
  const hash = createHash("sha256");
  const block = Buffer.from(`${line}\n`.repeat(1000));
  for (let left = bytes; left > 0; left -= block.length)
    hash.update(block.subarray(0, Math.min(left, block.length)));
  return hash.digest("hex");
}
