/**
 * The host's clock jumps: `clock.ts set` sets it an hour ahead for a while, `clock.ts suspend` suspends the host to memory
 * for a minute. Guests follow it, and their monotonic clock does not go back.
 */
import { execFileSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { ownClient, shell } from "./inside.ts";

const JUMP_S = 3600;
const SUSPENDED_S = 60;
const OFF_S = 15;
const FOLLOWS_WITHIN_MS = 300_000;

/** Each makes the clock jump, and returns what undoes it. */
const WAYS: Record<string, () => () => void> = {
  set: () => {
    setClock(JUMP_S);
    return () => setClock(-JUMP_S);
  },
  suspend: () => {
    const started = { real: Date.now(), monotonic: performance.now() };
    execFileSync("rtcwake", ["--mode", "mem", "--seconds", String(SUSPENDED_S)]);
    // The host's own monotonic clock does not count the time that it is suspended.
    const asleep = Date.now() - started.real - (performance.now() - started.monotonic);
    if (asleep < (SUSPENDED_S / 2) * 1000) throw new Error(`the host slept for ${asleep} ms only`);
    console.log(`the host was suspended for ${Math.round(asleep / 1000)} s`);
    return () => {};
  },
};

const way = WAYS[process.argv[2] ?? ""];
if (!way) throw new Error(`expected one of ${Object.keys(WAYS).join(", ")}`);
const client = ownClient();
const { session_id } = await client.sessions.create();
const session = client.session(session_id);
const clocks = async () => {
  const [real = 0, monotonic = 0] = (
    await shell(session, "python3 -c 'import time; print(time.time(), time.monotonic())'")
  )
    .trim()
    .split(" ")
    .map(Number);
  return { off: Math.abs(real - Date.now() / 1000), monotonic };
};
const before = await clocks();
const undo = way();
try {
  const deadline = performance.now() + FOLLOWS_WITHIN_MS;
  let after = await clocks();
  while (after.off > OFF_S && performance.now() < deadline) {
    await sleep(1_000);
    after = await clocks();
  }
  if (after.off > OFF_S)
    throw new Error(`after a jump of the host's clock the session's is ${after.off} s off`);
  const passed = after.monotonic - before.monotonic;
  if (passed < 0 || passed > JUMP_S) throw new Error(`CLOCK_MONOTONIC went on by ${passed} s`);
  console.log(`off by ${after.off.toFixed(2)} s, monotonic went on by ${passed.toFixed(0)} s`);
} finally {
  undo();
}
await client.sessions.delete(session_id);

function setClock(bySeconds: number): void {
  execFileSync("date", [`--set=@${Math.round(Date.now() / 1000 + bySeconds)}`], { stdio: "ignore" });
}
