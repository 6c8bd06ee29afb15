/**
 * The KVM module is taken away under the service: it stays while a machine runs, and without it a start fails with the
 * reason, while the service keeps serving. Started with VIV_WARM_MACHINES=0.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { expectEqual, ownClient, shell } from "./inside.ts";

const MODULE = "kvm_amd";
const UNUSED_WITHIN_MS = 60_000;

const client = ownClient();
const { session_id } = await client.sessions.create();
const session = client.session(session_id);
await shell(session, "true");
const refused = spawnSync("modprobe", ["-r", MODULE], { encoding: "utf8" });
if (refused.status === 0) throw new Error("the module went away while a machine used it");
console.log(`modprobe -r with a live machine: ${refused.stderr.trim()}`);
expectEqual(await shell(session, "echo alive"), "alive\n", "the session's answer");

await client.sessions.pause(session_id);
await takeAway();
try {
  const failed = await client.sessions.create();
  const reason = await client.sessions.waitUntilLive(failed.session_id).then(
    () => "it became live",
    (error: Error) => error.message,
  );
  if (!/kvm/i.test(reason)) throw new Error(`without KVM a create ends with: ${reason}`);
  console.log(`a create without KVM: ${reason}`);
  const wake = await shell(session, "true").then(
    () => "it woke",
    (error: Error) => error.message,
  );
  if (!/kvm/i.test(wake)) throw new Error(`without KVM a wake ends with: ${wake}`);
  console.log(`a wake without KVM: ${wake}`);
  expectEqual((await client.sessions.get(session_id)).state, "paused", "the session that could not be woken");
  await client.sessions.delete(failed.session_id);
} finally {
  execFileSync("modprobe", [MODULE]);
}
expectEqual(await shell(session, "echo alive"), "alive\n", "the session's answer after KVM is back");
await client.sessions.delete(session_id);

/** The machine of a paused session may still be ending. */
async function takeAway(): Promise<void> {
  const deadline = performance.now() + UNUSED_WITHIN_MS;
  for (;;) {
    const { status, stderr } = spawnSync("modprobe", ["-r", MODULE], { encoding: "utf8" });
    if (status === 0) return;
    if (performance.now() > deadline)
      throw new Error(`${stderr.trim()}; it is open in: ${openIn("/dev/kvm").join(", ") || "no process"}`);
    await sleep(1_000);
  }
}

function openIn(device: string): string[] {
  const script = `for p in /proc/[0-9]*; do ls -l $p/fd 2>/dev/null | grep -q ${device} && tr '\\0' ' ' <$p/cmdline; done`;
  return spawnSync("sh", ["-c", script], { encoding: "utf8" }).stdout.split("\n");
}
