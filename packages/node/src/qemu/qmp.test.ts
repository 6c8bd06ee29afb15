import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Qmp } from "./qmp.ts";

let folder: string;
let server: Server;
/** The monitor's answer to a command after the first. */
let says: string;

/** Resolves once it was sent. */
let said: PromiseWithResolvers<void>;

/** A monitor that greets as QEMU does, and then sends this answer. */
function serve(socket: Socket): void {
  socket.on("error", () => {});
  let commands = 0;
  socket.on("data", (line) => {
    commands++;
    const { id } = JSON.parse(line.toString());
    if (commands === 1) socket.write(`{"return":{},"id":${id}}\n`);
    else socket.write(`${says}\n`, () => said.resolve());
  });
}

beforeEach(async () => {
  said = Promise.withResolvers();
  folder = await mkdtemp(join(tmpdir(), "qmp-"));
  server = createServer(serve).listen(join(folder, "monitor.sock"));
  await once(server, "listening");
});

afterEach(async () => {
  server.close();
  await rm(folder, { recursive: true });
});

test.each(["null", "7", '"text"', "[]", "{", '{"event":"STOP","data":null}', '{"error":null,"id":null}'])(
  "a QEMU that says %s to a command ends its own monitor at most",
  async (line) => {
    says = line;
    const qmp = await Qmp.connect(join(folder, "monitor.sock"), {
      limitMs: 5_000 * SLOWNESS,
      alive: () => true,
    });
    const heard: unknown[] = [];
    qmp.onEvent((_event, data) => heard.push(data.status));
    const answer = qmp.execute("query-status").then(
      () => "answered",
      () => "ended",
    );
    await said.promise;
    // By now it is in the other end's socket.
    await new Promise((resolve) => setTimeout(resolve, 100));
    qmp.close();
    expect(await answer).toBe("ended");
    expect(heard.length).toBeLessThanOrEqual(1);
  },
);

test("drops a QEMU whose monitor sends no objects", async () => {
  says = "null";
  const qmp = await Qmp.connect(join(folder, "monitor.sock"), {
    limitMs: 5_000 * SLOWNESS,
    alive: () => true,
  });
  await expect(qmp.execute("query-status")).rejects.toThrow("QEMU closed its monitor");
  await qmp.closed;
});
