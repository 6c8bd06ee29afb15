/**
 * A guest that ends itself, by its root user's own hand. Its session fails with a reason, every command in it ends with
 * one error and never an exit, and nothing of the machine is left on the host.
 */
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { readProcess } from "../support/host-processes.ts";
import { ask, client, service, sh, withSession } from "../support/http.ts";
import { machinePid, machineTraces } from "../support/machine-traces.ts";
import { servicePid } from "../support/service.ts";

const CLEARED_WITHIN_MS = 10_000;
/** A command that outlives the end of its guest, however long that takes on this host. */
const STAY = `sleep ${60 * SLOWNESS}`;
const POWERED_OFF = "the machine ended: it was powered off from inside";
const RESTARTED = "the machine ended: its kernel crashed or was restarted from inside";

const ENDS: [name: string, script: string, reason: string][] = [
  ["powers off by sysrq", `sudo sh -c 'echo o > /proc/sysrq-trigger'; ${STAY}`, POWERED_OFF],
  ["panics", `sudo sh -c 'echo c > /proc/sysrq-trigger'; ${STAY}`, RESTARTED],
  ["restarts by sysrq", `sudo sh -c 'echo b > /proc/sysrq-trigger'; ${STAY}`, RESTARTED],
  [
    "calls reboot(2)",
    `sudo python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x01234567)'; ${STAY}`,
    RESTARTED,
  ],
];

describe.each(ENDS)("a guest that %s", (_name, script, reason) => {
  test("fails its session, breaks off its commands and leaves nothing", async () => {
    await withSession(async (id) => {
      const pid = machinePid(service.dataDir, id);
      const bystander = streamOf(id, `echo begun; exec sleep ${600 * SLOWNESS}`);
      const killer = streamOf(id, script);
      const outcomes = await Promise.all([bystander, killer]);
      const endedAt = Date.now();
      for (const { events, last } of outcomes) {
        expect(events.filter((event) => event === "exit" || event === "error")).toEqual(["error"]);
        expect(last).toMatch(/^[^\n]{10,}$/);
      }
      await expectFailed(id, reason);
      console.log(`failed ${Date.now() - endedAt} ms after its streams ended`);
      await expectNothingLeft(id, pid);
    });
  });
});

test("a machine that ends while its node is away is found ended when the node is back", async () => {
  await withSession(async (id) => {
    const pid = machinePid(service.dataDir, id);
    // Long enough that its node is away by then.
    const script = `(sleep ${8 * SLOWNESS}; sudo sh -c 'echo o > /proc/sysrq-trigger') > /dev/null 2>&1 &`;
    await client.sessions.exec(id, { command: sh(script) });
    const node = servicePid(service, "node");
    process.kill(node, "SIGSTOP");
    await eventually(() => expect(readProcess(pid)).toBeUndefined(), 8_000 + 2 * CLEARED_WITHIN_MS);
    process.kill(node, "SIGKILL");
    // The node is restarted first.
    await expectFailed(
      id,
      "the machine ended: its process ended while its node was down",
      3 * CLEARED_WITHIN_MS,
    );
    await expectNothingLeft(id, pid);
  });
});

test("a machine that was adopted by a new node is seen to end as well", async () => {
  await withSession(async (id) => {
    const pid = machinePid(service.dataDir, id);
    const old = servicePid(service, "node");
    process.kill(old, "SIGKILL");
    await eventually(() => client.sessions.exec(id, { command: ["true"] }));
    expect(servicePid(service, "node")).not.toBe(old);
    const { last } = await streamOf(id, `sudo sh -c 'echo o > /proc/sysrq-trigger'; ${STAY}`);
    expect(last).toMatch(/^[^\n]{10,}$/);
    await expectFailed(id, POWERED_OFF);
    await expectNothingLeft(id, pid);
  });
});

test("a guest without its agent's port is cut off, not believed, and can be deleted", async () => {
  await withSession(async (id) => {
    const pid = machinePid(service.dataDir, id);
    const unbind = "cd /sys/bus/virtio/drivers/virtio_console; ls -d virtio* > unbind";
    const { events, last } = await streamOf(
      id,
      `sudo sh -c '${unbind}'; echo after; exit 0`,
      5000 * SLOWNESS,
    );
    expect(events.filter((event) => event === "exit" || event === "error")).toEqual(["error"]);
    expect(last).toMatch(/^[^\n]{10,}$/);
    const refused = await ask(`/v1/sessions/${id}/exec`, {
      body: { command: ["true"], timeout_ms: 5000 * SLOWNESS },
    });
    expect(refused).toMatchObject({ status: 503, body: { code: "session_unavailable" } });
    expect(await ask(`/v1/sessions/${id}`, { method: "DELETE" })).toMatchObject({ status: 204 });
    expect(readProcess(pid)).toBeUndefined();
    expect(() => machinePid(service.dataDir, id)).toThrow("has no machine");
  });
});

test("a guest without its agent's port is paused all the same, and continues only as itself", async () => {
  await withSession(async (id) => {
    const unbind = "cd /sys/bus/virtio/drivers/virtio_console; ls -d virtio* > unbind";
    await streamOf(id, `sudo sh -c '${unbind}'; exit 0`, 5000 * SLOWNESS);
    const copies = [`/v1/sessions/${id}/checkpoints`, `/v1/sessions/${id}/fork`];
    for (const path of copies) expect(await ask(path, { body: {} })).toMatchObject({ status: 503 });
    expect(await ask(`/v1/sessions/${id}/pause`, { body: {} })).toMatchObject({
      status: 200,
      body: { state: "paused" },
    });
    for (const path of copies)
      expect(await ask(path, { body: {} })).toMatchObject({ status: 409, body: { code: "conflict" } });
    expect(await ask(`/v1/sessions/${id}/resume`, { body: {} })).toMatchObject({
      status: 409,
      body: { code: "conflict", error: expect.stringContaining("stays paused") },
    });
    expect((await ask(`/v1/sessions/${id}`)).body.state).toBe("paused");
  });
});

test.each(["kill -9 -1", "sudo sh -c 'kill -9 -1'"])(
  "%s ends the commands, not the session",
  async (script) => {
    await withSession(async (id) => {
      const bystander = streamOf(id, "echo begun; exec sleep 600");
      await eventually(async () => {
        const seen = await client.sessions.exec(id, { command: ["pgrep", "-xfc", "sleep 600"] });
        expect(seen.stdout).toBe("1\n");
      });
      const killed = await client.sessions.exec(id, { command: sh(script), timeout_ms: 20_000 * SLOWNESS });
      expect(killed).toMatchObject({ timed_out: false });
      expect([0, 137]).toContain(killed.exit_code);
      expect(await bystander).toMatchObject({ events: ["stdout", "exit"], last: 137 });
      const after = await client.sessions.exec(id, { command: ["echo", "still here"] });
      expect(after).toMatchObject({ stdout: "still here\n", exit_code: 0 });
      expect(await client.sessions.get(id)).toMatchObject({ state: "live" });
    });
  },
);

/** The kinds of a command's events, and the content of the last one: an exit code, or the text of an error. */
async function streamOf(id: string, script: string, timeout_ms = 100_000 * SLOWNESS) {
  const response = await fetch(`${service.url}/v1/sessions/${id}/exec?stream=true`, {
    method: "POST",
    headers: { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" },
    body: JSON.stringify({ command: sh(script), timeout_ms }),
  });
  const blocks = (await response.text()).split("\n\n").filter((block) => block.startsWith("event: "));
  const events = blocks.map((block) => block.slice("event: ".length, block.indexOf("\n")));
  const data = blocks.at(-1)?.split("\ndata: ")[1] ?? "";
  return { events, last: events.at(-1) === "exit" ? JSON.parse(data).exit_code : data };
}

async function expectFailed(id: string, reason: string, withinMs = CLEARED_WITHIN_MS): Promise<void> {
  await eventually(async () => {
    expect(await client.sessions.get(id)).toMatchObject({ state: "failed", status_reason: reason });
  }, withinMs);
  const refused = await ask(`/v1/sessions/${id}/exec`, { body: { command: ["true"] } });
  expect(refused).toMatchObject({ status: 409, body: { code: "conflict" } });
}

/** A failed session leaves no process, uid, namespace or file on its host, already before it is deleted. */
async function expectNothingLeft(id: string, pid: number): Promise<void> {
  await eventually(() => {
    expect(readProcess(pid)).toBeUndefined();
    expect(machineTraces(service.dataDir)).toMatchObject({ processes: 0, uids: 0, folders: [] });
  }, CLEARED_WITHIN_MS);
  expect(() => machinePid(service.dataDir, id)).toThrow("has no machine");
}
