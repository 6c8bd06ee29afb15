/** A guest that stops answering for a while, as under its own limits: nothing passes between it and its client then. */
import { once } from "node:events";
import { rmSync } from "node:fs";
import type { Http2ServerResponse } from "node:http2";
import { connect, createServer, type Socket } from "node:net";
import { encodeFrame, FRAME, FrameDecoder } from "@vivarium/contract/guest";
import { sleep } from "@vivarium/kit/clock";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { expect, onTestFinished, test } from "vitest";
import { startScriptedAgent } from "../../test-support/scripted-agent.ts";
import { AgentClient } from "./client.ts";
import { execInGuest } from "./exec.ts";

const LATE_MS = 300 * SLOWNESS;
const COMMAND = { argv: ["fill-the-cache"], env: {}, timeout_ms: 600_000 };
const HEALTH = { generation: 1, version: "1", uptime_ms: 1 };
const EXIT = {
  exit_code: 0,
  timed_out: false,
  duration_us: 1,
  stdout_truncated: false,
  stderr_truncated: false,
};

/** An agent behind a port that can be frozen, and its client. `endCommand` lets the command that runs end. */
async function slowGuest(limits: { deadAfterMs: number }) {
  let command: Http2ServerResponse | undefined;
  const agent = await startScriptedAgent({
    handle: (request, response) => {
      if (request.url !== "/v1/exec") return void response.end(JSON.stringify(HEALTH));
      command = response;
      response.write(encodeFrame(FRAME.stdout, "begun"));
    },
  });
  const pairs: [Socket, Socket][] = [];
  const join = ([one, other]: [Socket, Socket]) => void one.pipe(other).pipe(one);
  const port = createServer((client) => {
    const pair: [Socket, Socket] = [client, connect(agent.socketPath)];
    for (const socket of pair)
      socket.on("error", () => {}).on("close", () => pair.map((one) => one.destroy()));
    pairs.push(pair);
    join(pair);
  });
  const socketPath = `${agent.socketPath}.port`;
  port.listen(socketPath);
  await once(port, "listening");
  const client = new AgentClient(socketPath, { silenceMs: 0, pingMs: LATE_MS, callMs: LATE_MS, ...limits });
  onTestFinished(async () => {
    client.close();
    for (const socket of pairs.flat()) socket.destroy();
    port.close();
    rmSync(socketPath, { force: true });
    await agent.close();
  });
  return {
    client,
    connections: agent.connections,
    freeze: () => pairs.flat().forEach((socket) => void socket.unpipe().pause()),
    thaw: () => pairs.forEach(join),
    endCommand: () => command?.end(encodeFrame(FRAME.exit, JSON.stringify(EXIT))),
  };
}

test("a guest that answers late keeps the commands that run in it; what was asked meanwhile fails", async () => {
  const guest = await slowGuest({ deadAfterMs: 600_000 });
  const output = await execInGuest(guest.client, COMMAND);
  guest.freeze();
  for (const ask of [
    () => guest.client.health(),
    () => guest.client.request("GET", "/v1/processes", { isRepeatable: true }),
    () => guest.client.freeze(),
  ])
    await expect(ask()).rejects.toMatchObject({ code: "agent_unavailable" });
  guest.thaw();
  expect(await guest.client.health()).toMatchObject(HEALTH);
  guest.endCommand();
  const decoder = new FrameDecoder();
  const types = [];
  for await (const chunk of output) types.push(...decoder.push(chunk).map(({ type }) => type));
  expect(types).toEqual([FRAME.stdout, FRAME.exit]);
  expect(guest.connections()).toBe(1);
});

test("a connection without commands is made anew after a late answer", async () => {
  const guest = await slowGuest({ deadAfterMs: 600_000 });
  await guest.client.health();
  guest.freeze();
  await expect(guest.client.health()).rejects.toMatchObject({ code: "agent_unavailable" });
  expect(await guest.client.health()).toMatchObject(HEALTH);
  expect(guest.connections()).toBe(2);
});

test("a guest that stays silent is given up, with what runs in it", async () => {
  const guest = await slowGuest({ deadAfterMs: LATE_MS });
  const output = await execInGuest(guest.client, COMMAND);
  const ended = output.toArray();
  ended.catch(() => {});
  guest.freeze();
  await expect(guest.client.health()).rejects.toMatchObject({ code: "agent_unavailable" });
  await sleep(LATE_MS + 50);
  await expect(guest.client.health()).rejects.toMatchObject({ code: "agent_unavailable" });
  await expect(ended).rejects.toThrow();
});
