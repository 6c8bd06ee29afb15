/** Clients that leave at every instant of a command's start. */
import { connect } from "node:net";
import { sleep } from "@vivarium/kit/clock";
import { size } from "@vivarium/kit/test-support/sizes";
import { expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { client, service, withSession } from "../support/http.ts";
import { servicePid } from "../support/service.ts";

const STREAMS = size({ ci: 16, full: 40 });
/** Appears as "abandoned 300" among the processes. */
const ABANDONED = ["bash", "-c", "exec -a abandoned sleep 300"];
const COUNT = { command: ["pgrep", "-c", "-f", "^abandoned"] };

/** Sends a streamed exec and closes the connection after so many milliseconds, or after this promise. */
async function abandon(id: string, command: string[], after: number | Promise<unknown>): Promise<void> {
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => {});
  const body = JSON.stringify({ command, timeout_ms: 600_000 });
  socket.write(
    `POST /v1/sessions/${id}/exec?stream=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${service.apiKey}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  await (typeof after === "number" ? sleep(after) : after).finally(() => socket.destroy());
}

test("a client that leaves while its command is being started kills the command, and harms no other", async () => {
  await withSession(async (id) => {
    const node = servicePid(service, "node");
    // Seen while its client stays, so that the count below means something.
    const isSeen = eventually(async () => expect((await client.sessions.exec(id, COUNT)).stdout).toBe("1\n"));
    await abandon(id, ABANDONED, isSeen);
    for (let i = 0; i < STREAMS; i++) await abandon(id, ABANDONED, (i * 31) / STREAMS);
    await eventually(async () => {
      expect((await client.sessions.exec(id, COUNT)).stdout).toBe("0\n");
    });
    for (let i = 0; i < 6; i++) await abandon(id, ["sleep", "300"], 10 + i * 4);
    await client.sessions.delete(id);
    await sleep(1_000);
    expect(servicePid(service, "node")).toBe(node);
  });
});

test("a client that leaves before its session is ready leaves no command behind", async () => {
  const { session_id: id } = await client.sessions.create();
  await abandon(id, ABANDONED, 20);
  await client.sessions.exec(id, { command: ["true"] });
  await eventually(async () => expect((await client.sessions.exec(id, COUNT)).stdout).toBe("0\n"));
  await client.sessions.delete(id);
});
