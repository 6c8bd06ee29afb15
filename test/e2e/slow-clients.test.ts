/** A client that does not read holds its program up, and costs no memory. */
import { sleep } from "@vivarium/kit/clock";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { residentBytes } from "../support/host-processes.ts";
import { client, service, sh, withSession } from "../support/http.ts";
import { servicePid } from "../support/service.ts";
import { openTerminal } from "../support/web-socket.ts";

const MIB = 1024 * 1024;

test("a terminal whose client does not read blocks its program instead of filling memory", {
  timeout: 300_000 * SLOWNESS,
}, async () => {
  const control = servicePid(service, "control");
  // Without the terminal's own work on each byte, what lies between program and client is full sooner.
  const script =
    "stty -opost; i=0; while :; do i=$((i+1)); echo $i > /workspace/count; head -c 65536 /dev/zero; done";
  await withSession(async (id) => {
    const count = async () =>
      (await client.sessions.exec(id, { command: sh("cat /workspace/count") })).stdout;
    const terminal = await openTerminal(id, `?cmd=sh&cmd=-c&cmd=${encodeURIComponent(script)}`);
    await eventually(() => expect(terminal.messages.length).toBeGreaterThan(0));
    terminal.webSocket.pause();
    const before = residentBytes(control);
    const stands = async () => {
      // A client that reads nothing answers no pings, and would be taken for gone.
      terminal.webSocket.ping();
      const first = await count();
      await sleep(2_000);
      expect(await count()).toBe(first);
    };
    await eventually(stands, 120_000);
    expect(residentBytes(control) - before).toBeLessThan(64 * MIB);
    terminal.webSocket.resume();
    await eventually(async () => await expect(stands()).rejects.toThrow());
    terminal.webSocket.terminate();
  });
});
