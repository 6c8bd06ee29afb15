/** Attached volumes when processes die, and when a session goes back in time. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { client, service, sh } from "../support/http.ts";
import { machinePid } from "../support/machine-traces.ts";
import { servicePid } from "../support/service.ts";

/** The supervisor starts again what died, and control looks for what it finds. */
const BACK_MS = 60_000;
const volumes: string[] = [];
const sessions: string[] = [];
afterAll(async () => {
  for (const id of sessions) await client.sessions.delete(id).catch(() => {});
  for (const id of volumes) await eventually(() => client.volumes.delete(id), BACK_MS).catch(() => {});
});

async function newVolume(): Promise<string> {
  const { id } = await client.volumes.create();
  volumes.push(id);
  return id;
}
async function start(volume_id: string, more: { secrets?: Record<string, string> } = {}): Promise<string> {
  const { session_id } = await client.sessions.create({ volume_id, ...more });
  sessions.push(session_id);
  await client.sessions.waitUntilLive(session_id);
  return session_id;
}
const run = async (id: string, script: string) => {
  const { stdout, stderr, exit_code } = await client.sessions.exec(id, { command: sh(script) });
  expect(exit_code, `${script}: ${stdout}${stderr}`).toBe(0);
  return stdout.trim();
};
const isFree = (id: string) =>
  eventually(async () => expect(await client.volumes.get(id)).toMatchObject({ attached: false }), BACK_MS);

test("kill -9 of its machine loses nothing that was synced, and frees the volume", async () => {
  const volume_id = await newVolume();
  const first = await start(volume_id);
  await run(first, "echo synced > /volume/file && sync /volume/file");
  process.kill(machinePid(service.dataDir, first), "SIGKILL");
  await isFree(volume_id);
  const second = await start(volume_id);
  expect(await run(second, "cat /volume/file; echo more >> /volume/file")).toBe("synced");
  await client.sessions.delete(second);
});

test("a session with secrets has its volume before and after a sealed pause, and what it wrote outlives it", async () => {
  const volume_id = await newVolume();
  const id = await start(volume_id, { secrets: { TOKEN: "of-the-session" } });
  await run(id, "echo one > /volume/file; echo $TOKEN > /workspace/file");
  await client.sessions.pause(id);
  const states = await readdir(join(service.dataDir, "pool/s"), { recursive: true });
  expect(states.filter((name) => name.endsWith("/mem.sealed"))).toHaveLength(1);
  expect(await client.volumes.get(volume_id)).toMatchObject({ attached: true, session_id: id });
  expect(await run(id, "cat /volume/file /workspace/file; echo $TOKEN; echo two >> /volume/file")).toBe(
    "one\nof-the-session\nof-the-session",
  );
  await client.sessions.delete(id);
  await isFree(volume_id);
  const plain = await start(volume_id);
  expect(await run(plain, "cat /volume/file; echo $TOKEN")).toBe("one\ntwo");
  await client.sessions.delete(plain);
});

describe.each(["node", "control"] as const)("kill -9 of %s", (victim) => {
  test("leaves the volume mounted in its session, and a pause and a wake work afterwards", async () => {
    const volume_id = await newVolume();
    const id = await start(volume_id);
    await run(id, "echo before > /volume/file");
    process.kill(servicePid(service, victim), "SIGKILL");
    await eventually(() => client.sessions.get(id), BACK_MS);
    expect(await eventually(() => run(id, "cat /volume/file; echo after >> /volume/file"), BACK_MS)).toBe(
      "before",
    );
    await client.sessions.pause(id);
    expect(await run(id, "cat /volume/file")).toBe("before\nafter");
    await client.sessions.delete(id);
    await isFree(volume_id);
  });
});

test("a restore takes files and memory back, and leaves the volume as it is", async () => {
  const volume_id = await newVolume();
  const id = await start(volume_id);
  await run(id, "echo one | tee /volume/file > /workspace/file");
  const { checkpoint_id } = await client.checkpoints.create(id);
  await run(id, "echo two | tee /volume/file > /workspace/file");
  await client.sessions.restore(id, checkpoint_id);
  expect(await run(id, "cat /workspace/file /volume/file")).toBe("one\ntwo");
  await run(id, "echo three > /volume/file");

  const child = await client.checkpoints.start(checkpoint_id);
  sessions.push(child.session_id);
  expect(await run(child.session_id, "cat /workspace/file; ls -A /volume 2> /dev/null; true")).toBe("one");
  await expect(client.sessions.fork(id)).rejects.toMatchObject({ status: 409 });
  await client.checkpoints.delete(checkpoint_id);
  await client.sessions.delete(child.session_id);
  await client.sessions.delete(id);
});

test("processes with open files in the volume live through a checkpoint, and through a pause without those files", async () => {
  const volume_id = await newVolume();
  const id = await start(volume_id);
  // It appends through one descriptor as long as that works, and says so where it always can.
  const writer =
    "exec 3>> /volume/log; n=0; while sleep 0.2; do n=$((n+1)); if echo $n >&3; then echo $n > /tmp/wrote; else echo $n > /tmp/failed; fi; done";
  await run(id, `(${writer}) > /dev/null 2>&1 & until test -s /tmp/wrote; do sleep 0.1; done`);
  const { checkpoint_id } = await client.checkpoints.create(id);
  await run(id, "rm /tmp/wrote; until test -s /tmp/wrote; do sleep 0.1; done");
  await client.sessions.pause(id);
  // The volume is there, whole, for whatever opens a file now; the old descriptor fails.
  await run(id, "test -s /volume/log && echo anew > /volume/new && cat /volume/new");
  await run(id, "until test -s /tmp/failed; do sleep 0.1; done");
  // A checkpoint that was made while the volume was in use goes back to it as well.
  await client.sessions.restore(id, checkpoint_id);
  expect(await run(id, "cat /volume/new; grep -c ' /volume ' /proc/mounts")).toBe("anew\n1");
  await client.checkpoints.delete(checkpoint_id);
  await client.sessions.delete(id);
});
