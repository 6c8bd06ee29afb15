/** Cost of the agent in its guest, and its errors for commands that cannot run. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { client, sh } from "../support/http.ts";

const BINARY_BYTES = 5_000_000;
const RESIDENT_KIB = 4096;
/** The two looks themselves are some work. */
const IDLE_TICKS = 2;
const MOST_LOOKS = 5;

let id: string;
beforeAll(async () => {
  ({ session_id: id } = await client.sessions.create());
  await client.sessions.waitUntilLive(id);
});
afterAll(() => client.sessions.delete(id));

describe("the agent", () => {
  test("is a small program", async () => {
    const { stdout } = await client.sessions.exec(id, { command: sh("sudo stat -L -c %s /proc/1/exe") });
    expect(Number(stdout)).toBeGreaterThan(100_000);
    expect(Number(stdout)).toBeLessThan(BINARY_BYTES);
  });

  test("takes no processor when idle", async () => {
    // User and system time of process 1, in ticks of 10 ms.
    const ticks = `awk '{print $14 + $15}' /proc/1/stat`;
    const used = async () => {
      const { stdout } = await client.sessions.exec(id, { command: sh(`${ticks}; sleep 6; ${ticks}`) });
      const [before = Number.NaN, after = Number.NaN] = stdout.trim().split("\n").map(Number);
      expect(before).toBeGreaterThan(0);
      return after - before;
    };
    // A busy host stalls the machine while its clock runs, and the kernel counts that as work of the process that was running. An
    // agent that is busy itself is so at every look.
    const looks: number[] = [];
    while (looks.length < MOST_LOOKS && !looks.some((at) => at <= IDLE_TICKS)) looks.push(await used());
    expect(Math.min(...looks), `ticks at each look: ${looks}`).toBeLessThanOrEqual(IDLE_TICKS);
  });

  test("takes little memory when idle, and gives back what a burst of commands took", async () => {
    expect(await residentKib()).toBeLessThan(RESIDENT_KIB);
    // A letter is one byte of an answer, and a zero byte six: the service lets go of answers of many megabytes that a busy client
    // does not read.
    const letters = (count: number) => `head -c ${count} /dev/zero | tr '\\0' x`;
    const command = sh(`${letters(3_000_000)}; ${letters(1_000_000)} >&2`);
    const burst = Array.from({ length: 12 }, () =>
      client.sessions.exec(id, { command, timeout_ms: 120_000 }),
    );
    for (const result of await Promise.all(burst)) expect(result.exit_code).toBe(0);
    await eventually(async () => expect(await residentKib()).toBeLessThan(RESIDENT_KIB));
  });
});

describe("a script", () => {
  const run = async (firstLine: string) => {
    const write = `rm -f script; printf '%b' "$0" > script; chmod +x script`;
    await client.sessions.exec(id, { command: ["sh", "-c", write, firstLine] });
    return client.sessions.exec(id, { command: ["./script"] });
  };

  test("whose interpreter cannot be used says which, in words", async () => {
    expect(await run("#!/nope -x\\n")).toMatchObject({
      exit_code: 127,
      stderr: "./script: /nope: bad interpreter: No such file or directory\n",
    });
    expect(await run("#!/bin/sh\\r\\n")).toMatchObject({
      exit_code: 127,
      stderr: "./script: /bin/sh\\r: bad interpreter: No such file or directory\n",
    });
    expect(await run("#!/etc/passwd\\n")).toMatchObject({
      exit_code: 126,
      stderr: "./script: /etc/passwd: bad interpreter: Permission denied\n",
    });
    expect(await run("#!/bin/sh\\necho ran\\n")).toMatchObject({ exit_code: 0, stdout: "ran\n" });
  });

  test("that is missing, or not executable, is reported differently", async () => {
    expect(await client.sessions.exec(id, { command: ["./nothing"] })).toMatchObject({
      exit_code: 127,
      stderr: "./nothing: command not found\n",
    });
    expect(await client.sessions.exec(id, { command: ["/etc/passwd"] })).toMatchObject({
      exit_code: 126,
      stderr: "/etc/passwd: Permission denied\n",
    });
  });
});

async function residentKib(): Promise<number> {
  const { stdout } = await client.sessions.exec(id, { command: sh("sudo grep VmRSS /proc/1/status") });
  const kib = Number(/^VmRSS:\s+(\d+) kB$/m.exec(stdout)?.[1]);
  expect(kib).toBeGreaterThan(0);
  return kib;
}
