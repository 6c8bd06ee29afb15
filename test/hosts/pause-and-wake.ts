/** Pauses and wakes one session many times, and checks its memory and its clocks: `pause-and-wake.ts --rounds 25`. */
import { parseArgs } from "node:util";
import { expectEqual, ownClient, shell } from "./inside.ts";

const { values } = parseArgs({ options: { rounds: { type: "string", default: "25" } } });
/** A busy host answers late; a clock that was not set after a pause is off by more. */
const CLOCK_OFF_S = 10;
/** How long the session stays paused, so that a clock that was not set shows. */
const PAUSED_MS = 15_000;

const client = ownClient();
const { session_id } = await client.sessions.create();
const session = client.session(session_id);
await shell(session, "mkdir -p /dev/shm/t && head -c 8388608 /dev/urandom >/dev/shm/t/noise");
const sum = await shell(session, "sha256sum /dev/shm/t/noise");
const clocks = "python3 -c 'import time; print(time.time(), time.monotonic())'";
let uptime = 0;
for (let round = 1; round <= Number(values.rounds); round++) {
  await client.sessions.pause(session_id);
  expectEqual((await client.sessions.get(session_id)).state, "paused", "the state after a pause");
  if (round <= 2) await new Promise((resolve) => setTimeout(resolve, PAUSED_MS));
  expectEqual(await shell(session, "sha256sum /dev/shm/t/noise"), sum, `the memory after wake ${round}`);
  const [real = 0, monotonic = 0] = (await shell(session, clocks)).trim().split(" ").map(Number);
  const off = Math.abs(real - Date.now() / 1000);
  if (off > CLOCK_OFF_S)
    throw new Error(`after wake ${round} the session's clock is ${off.toFixed(1)} s off`);
  if (monotonic < uptime)
    throw new Error(`after wake ${round} CLOCK_MONOTONIC went from ${uptime} to ${monotonic}`);
  uptime = monotonic;
  console.log(
    `${round}: memory is the same, clock ${off.toFixed(2)} s off, monotonic ${monotonic.toFixed(1)}`,
  );
}
await client.sessions.delete(session_id);
