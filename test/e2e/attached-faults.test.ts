/** Processes that die or vanish while clients are attached, and the effect on the clients and their session. */
import { randomBytes } from "node:crypto";
import { connect, type Socket as TcpSocket } from "node:net";
import { sleep } from "@vivarium/kit/clock";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { client, service, sh, withSession } from "../support/http.ts";
import { machinePid } from "../support/machine-traces.ts";
import { servicePid } from "../support/service.ts";
import { openTerminal, Socket } from "../support/web-socket.ts";

const KEPT = { on_pty_detach: "keep_live" };
const SILENCE_MS = 75_000;
/** Time for the effects of a dropped client: the policy, and the pause itself. */
const THEN_MS = 30_000;
const IS_FULL = size({ ci: 0, full: 1 }) === 1;

const stateOf = async (id: string) => (await client.sessions.get(id)).state;
const untilState = (id: string, state: string, withinMs = 60_000) =>
  eventually(async () => expect(await stateOf(id)).toBe(state), withinMs);
const inGuest = async (id: string, script: string) =>
  (await client.sessions.exec(id, { command: sh(script), timeout_ms: 60_000 })).stdout;
const countOf = async (id: string, command: string) =>
  Number(await inGuest(id, `pgrep -xfc '${command}' || true`));
const isHealthy = async () => expect((await fetch(`${service.url}/v1/healthz`)).ok).toBe(true);

/** A client that completes the handshake and then sends nothing, not even an answer to a ping. */
async function silentClient(path: string): Promise<TcpSocket> {
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname);
  const lines = [
    `GET ${path} HTTP/1.1`,
    `Host: ${hostname}`,
    `Authorization: Bearer ${service.apiKey}`,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    `Sec-WebSocket-Key: ${randomBytes(16).toString("base64")}`,
  ];
  socket.on("error", () => {});
  socket.write(`${lines.join("\r\n")}\r\n\r\n`);
  let answer = "";
  socket.on("data", (chunk) => {
    answer += chunk.toString("latin1");
  });
  await eventually(() => expect(answer).toMatch(/^HTTP\/1.1 101 /));
  return socket;
}

describe("kill -9 of the node", () => {
  test("closes its clients, hangs up what has no name, keeps what has one, and is a leave", async () => {
    await withSession(async (id) => {
      const named = await openTerminal(id, "?terminal=main");
      named.type("mine=there; echo pid-$$-\n");
      const pid = await named.shows(/pid-\d+-/);
      const unnamed = await openTerminal(id);
      unnamed.type("exec sleep 3301\n");
      const tunnel = await new Socket(`/v1/sessions/${id}/tunnel`).opened();
      await eventually(async () => expect(await countOf(id, "sleep 3301")).toBe(1));
      const machine = machinePid(service.dataDir, id);
      process.kill(servicePid(service, "node"), "SIGKILL");
      // Raw bytes cannot carry the reason of their end.
      expect(await Promise.all([named.closed, unnamed.closed, tunnel.closed])).toEqual([1011, 1011, 1000]);
      expect(named.messages.at(-1)?.[0]).toBe(0x06);
      await untilState(id, "paused");
      const again = await openTerminal(id, "?terminal=main");
      await again.shows(new RegExp(pid));
      again.type("echo still-$mine-$$-\n");
      await again.shows(new RegExp(`still-there-${pid.slice(4)}`));
      await eventually(async () => expect(await countOf(id, "sleep 3301")).toBe(0));
      expect(() => process.kill(machine, 0)).toThrow();
      await again.close();
    });
  });

  test("leaves a session that shall be kept live as it is", async () => {
    await withSession(async (id) => {
      const terminal = await openTerminal(id);
      const machine = machinePid(service.dataDir, id);
      process.kill(servicePid(service, "node"), "SIGKILL");
      expect(await terminal.closed).toBe(1011);
      const again = await eventually(() => openTerminal(id));
      again.type("echo $((6*7))\n");
      await again.shows(/[\r\n]42/);
      await again.close();
      expect([await stateOf(id), machinePid(service.dataDir, id)]).toEqual(["live", machine]);
    }, KEPT);
  });
});

test("kill -9 of control ends its clients, and what its policy says becomes of each session", async () => {
  const created = ["pause", "keep_live", "destroy"].map((on_pty_detach) =>
    client.sessions.create({ on_pty_detach: on_pty_detach as "pause" }),
  );
  const [paused = "", kept = "", destroyed = ""] = (await Promise.all(created)).map((one) => one.session_id);
  const terminals = [await openTerminal(paused), await openTerminal(kept), await openTerminal(destroyed)];
  const tunnel = await new Socket(`/v1/sessions/${paused}/tunnel`).opened();
  for (const terminal of terminals) terminal.type("exec sleep 3302\n");
  for (const id of [paused, kept])
    await eventually(async () => expect(await countOf(id, "sleep 3302")).toBe(1));
  process.kill(servicePid(service, "control"), "SIGKILL");
  const ends = [...terminals, tunnel].map(({ closed }) => closed);
  expect(await Promise.all(ends)).toEqual([1006, 1006, 1006, 1006]);
  await eventually(isHealthy);
  await untilState(paused, "paused");
  await eventually(
    () => expect(client.sessions.get(destroyed)).rejects.toMatchObject({ status: 404 }),
    60_000,
  );
  expect(await stateOf(kept)).toBe("live");
  for (const id of [paused, kept]) {
    await eventually(async () => expect(await countOf(id, "sleep 3302")).toBe(0));
    await client.sessions.delete(id);
  }
});

test("kill -9 of the machine closes its clients, and the session has failed", async () => {
  const { session_id: id } = await client.sessions.create();
  const [terminal, tunnel] = [await openTerminal(id), await new Socket(`/v1/sessions/${id}/tunnel`).opened()];
  process.kill(machinePid(service.dataDir, id), "SIGKILL");
  const [terminalCode, tunnelCode] = await Promise.all([terminal.closed, tunnel.closed]);
  // 1001 once the session is known to have failed; before that a terminal can report the failure, raw bytes cannot.
  expect([1001, 1011]).toContain(terminalCode);
  expect([1001, 1000]).toContain(tunnelCode);
  await untilState(id, "failed");
  await client.sessions.delete(id);
});

test.runIf(IS_FULL)(
  "clients that vanish without a word are dropped after 75 s, and have left then",
  {
    timeout: 300_000 * SLOWNESS,
  },
  async () => {
    await withSession(async (paused) => {
      await withSession(async (kept) => {
        const socket = await silentClient(`/v1/sessions/${paused}/pty`);
        const vanished = Date.now();
        const others = [
          await silentClient(`/v1/sessions/${kept}/pty`),
          await silentClient(`/v1/sessions/${kept}/tunnel`),
        ];
        const ended = [socket, ...others].map((one) => new Promise((resolve) => one.once("close", resolve)));
        // A client that is silent but answers pings is not dropped.
        const quiet = await openTerminal(kept, "?cmd=cat");
        let isQuietOpen = true;
        void quiet.closed.then(() => {
          isQuietOpen = false;
        });
        await sleep(SILENCE_MS - 10_000);
        expect(await stateOf(paused)).toBe("live");
        await untilState(paused, "paused", vanished + SILENCE_MS + THEN_MS - Date.now());
        await Promise.all(ended);
        await sleep(10_000);
        expect([isQuietOpen, await stateOf(kept)]).toEqual([true, "live"]);
        await quiet.close();
      }, KEPT);
    });
  },
);
