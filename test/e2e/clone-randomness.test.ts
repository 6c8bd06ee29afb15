/** Copies of one memory must not draw the same random numbers. */
import { randomId } from "@vivarium/kit/id";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { guestCall } from "../../packages/node/src/guest/calls.ts";
import { execInGuest } from "../../packages/node/src/guest/exec.ts";
import { readContent } from "../../packages/node/src/guest/streams.ts";
import { type Loadable, readManifest } from "../../packages/node/src/snapshots/manifest.ts";
import { startSpec } from "../contract/contracted-node.ts";
import { service } from "../support/http.ts";
import { startByHand, TapNamespace } from "../support/machine-by-hand.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { suspendControl } from "../support/service.ts";

const CLONES = size({ ci: 3, full: 8 });
/** 64 numbers of 8 bytes, by getrandom as Python draws them and by the device. */
const DRAW = [
  "sh",
  "-c",
  `python3 -c 'import os
for _ in range(64): print(os.getrandom(8).hex())'; head -c 512 /dev/urandom | od -An -v -tx1 -w8 | tr -d ' '`,
];
const node = nodeCaller(service.nodeSocket);
const sourceId = `${randomId()}-1`;
/** A guest's kernel may reseed itself between a capture and the next number, so one capture alone shows nothing. */
const MOST_CAPTURES = 5;
/** How long a copy on a busy host may take to answer, and to draw some numbers. */
const LIMIT_MS = 60_000 * SLOWNESS;

interface Captured {
  snapshotId: string;
  snapshot: Loadable;
}
const captured: Captured[] = [];

// Control soon removes snapshots that no row of its own names.
let control: { resume: () => void };

beforeAll(async () => {
  control = suspendControl(service);
  await node.call("PUT", `/v1/machines/${sourceId}`, startSpec());
  // Draws from its first instant on in every copy.
  const draw = `python3 -c 'import os,time
f = open("/workspace/drawn", "w", buffering=1)
while True: f.write(os.getrandom(8).hex() + chr(10)); time.sleep(0.002)' > /dev/null 2>&1 & until [ -s /workspace/drawn ]; do sleep 0.1; done`;
  expect(await node.exec(sourceId, { argv: ["sh", "-c", draw] })).toMatchObject({ exit: { exit_code: 0 } });
  await captureSource();
});
afterAll(async () => {
  await node.call("DELETE", `/v1/machines/${sourceId}`);
  for (const { snapshotId } of captured) await node.call("DELETE", `/v1/snapshots/${snapshotId}`);
  control.resume();
});

/** Captures the source, which keeps drawing. */
async function captureSource(): Promise<Captured> {
  const snapshotId = `tst_${randomId()}`;
  const spec = { machine_id: sourceId, after: "continue" };
  expect(await node.call("PUT", `/v1/snapshots/${snapshotId}`, spec)).toMatchObject({ status: 200 });
  const dir = `${service.dataDir}/pool/s/${snapshotId}`;
  const made = { snapshotId, snapshot: { dir, manifest: await readManifest(dir) } };
  captured.push(made);
  return made;
}

test(`${CLONES} copies of one memory share no random number`, async () => {
  const snapshotId = captured[0]?.snapshotId;
  const drawn: string[] = [];
  for (let i = 0; i < CLONES; i++) {
    const path = `/v1/machines/${randomId()}-1`;
    const started = await node.call("PUT", path, startSpec({ hostname: `c${i}`, snapshot_id: snapshotId }));
    expect(started).toMatchObject({ status: 200 });
    const { stdout } = await node.exec(path.split("/")[3] as string, { argv: DRAW });
    drawn.push(...numbersOf(stdout));
    await node.call("DELETE", path);
  }
  expect(drawn).toHaveLength(CLONES * 128);
  expect(new Set(drawn).size).toBe(drawn.length);
});

test("without the reseed they do, so the test above can fail", {
  timeout: MOST_CAPTURES * 120_000 * SLOWNESS,
}, async () => {
  const network = await TapNamespace.make("rnd");
  try {
    let shared: string[] = [];
    for (let at = 0; shared.length === 0 && at < MOST_CAPTURES; at++) {
      const { snapshot } = captured[at] ?? (await captureSource());
      const before = await drawnAtCapture(snapshot, network);
      const [first, second] = [
        await drawUnseeded(snapshot, before, network),
        await drawUnseeded(snapshot, before, network),
      ];
      expect(Math.min(first.length, second.length)).toBeGreaterThan(0);
      shared = first.filter((number) => second.includes(number));
    }
    expect(shared).not.toEqual([]);
  } finally {
    await network.remove();
  }
});

/** How many numbers the source had drawn when it was captured, by a copy whose processes are still frozen. */
async function drawnAtCapture(snapshot: Loadable, network: TapNamespace): Promise<number> {
  const machine = await startByHand(snapshot, `${service.dataDir}/pool`, network);
  try {
    await machine.go();
    const drawn = guestCall("GET", "/v1/files/read?path=drawn");
    const over = new AbortController();
    const { stream } = await readContent(machine.agent, drawn, over.signal, LIMIT_MS);
    return wholeNumbersIn(await stream.toArray()).length;
  } finally {
    await machine.end();
  }
}

/**
 * Numbers that a running process drew in a copy that was thawed without a reseed, from the instant of the capture on, but for one
 * that it may have drawn before and written after. Those that come first count: a copy's kernel reseeds itself after some time.
 */
async function drawUnseeded(snapshot: Loadable, before: number, network: TapNamespace): Promise<string[]> {
  const machine = await startByHand(snapshot, `${service.dataDir}/pool`, network);
  try {
    await machine.go();
    await machine.agent.command("/v1/thaw");
    const enough = `until [ $(wc -l < /workspace/drawn) -gt ${before + 16} ]; do sleep 0.1; done`;
    const argv = ["sh", "-c", `${enough}; tail -n +${before + 2} /workspace/drawn`];
    const frames = await execInGuest(machine.agent, { argv, env: {}, timeout_ms: LIMIT_MS });
    return wholeNumbersIn(await frames.toArray());
  } finally {
    await machine.end();
  }
}

const wholeNumbersIn = (chunks: Buffer[]) =>
  Buffer.concat(chunks)
    .toString("latin1")
    .match(/[0-9a-f]{16}(?=\n)/g) ?? [];
const numbersOf = (stdout: Buffer) => stdout.toString().trimEnd().split("\n");
