/** Data between a client and its terminal or tunnel, and how connections end. */
import { LIMITS } from "@vivarium/contract/api";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { type Client, connect, openPty, streamOf } from "../../test-support/terminal-client.ts";

let control: Control;
let id: string;
beforeAll(async () => {
  control = await startControl();
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
  id = await control.createLive({ on_pty_detach: "keep_live" });
});
afterEach(() => {
  control.node.onStream = (_call, accept) => void accept();
});
afterAll(() => control.close());

async function terminal(session = id) {
  const client = await openPty(control, session);
  return { client, stream: (await streamOf(control, session)).stream };
}
async function tunnel(session = id) {
  const client = await connect(control, `/v1/sessions/${session}/tunnel`).opened();
  return { client, stream: (await streamOf(control, session)).stream };
}
const frames = (stream: { received: { type: number; payload: Buffer }[] }) =>
  stream.received.map(({ type, payload }) => [type, payload.toString("latin1")]);
const last = (client: Client) => [...(client.messages.at(-1) ?? [])];

test("data goes both ways, and arrives whole and in order", async () => {
  const { client, stream } = await terminal();
  client.send(1, "echo hi\n");
  client.send(1, "exit\n");
  await eventually(() =>
    expect(frames(stream)).toEqual([
      [1, "echo hi\n"],
      [1, "exit\n"],
    ]),
  );
  stream.send(1, "hi\n");
  stream.send(1, "bye\n");
  stream.exit(0);
  expect(await client.closed).toBe(1000);
  expect(client.text).toBe("hi\nbye\n");
});

test("a resize reaches the terminal; one of a wrong length, or with a zero, is ignored", async () => {
  const { client, stream } = await terminal();
  client.send(2, 0, 24, 0);
  client.send(2, 0, 24, 0, 80, 0);
  client.send(2);
  client.send(2, 0, 0, 0, 80);
  client.send(2, 0, 24, 0, 0);
  client.send(2, 255, 255, 255, 255);
  client.send(2, 0, 50, 0, 132);
  await eventually(() =>
    expect(frames(stream)).toEqual([
      [2, "\xff\xff\xff\xff"],
      [2, "\x00\x32\x00\x84"],
    ]),
  );
  client.webSocket.terminate();
});

test("signals 1 to 31 reach the foreground process; others are ignored", async () => {
  const { client, stream } = await terminal();
  for (const signal of [0, 32, 255]) client.send(3, signal);
  client.send(3);
  client.send(3, 2, 2);
  for (const signal of [1, 9, 31]) client.send(3, signal);
  await eventually(() =>
    expect(frames(stream)).toEqual([
      [3, "\x01"],
      [3, "\x09"],
      [3, "\x1f"],
    ]),
  );
  client.webSocket.terminate();
});

test("empty messages and unknown types are ignored", async () => {
  const { client, stream } = await terminal();
  client.webSocket.send(Buffer.alloc(0));
  for (const type of [0, 4, 5, 6, 7, 0xff]) client.send(type, "x");
  client.send(1);
  client.send(1, "after");
  await eventually(() => expect(frames(stream)).toEqual([[1, "after"]]));
  stream.send(0x55, "unknown");
  stream.send(1, "after");
  await eventually(() => expect(client.text).toBe("after"));
  expect(client.messages).toHaveLength(1);
  client.webSocket.terminate();
});

test.each([0, 1, 137, -1])("exit %i is the last message, after all data; then 1000", async (code) => {
  const { client, stream } = await terminal();
  stream.send(1, "last words");
  stream.exit(code);
  expect(await client.closed).toBe(1000);
  expect(client.text).toBe("last words");
  const exit = client.messages.at(-1) ?? Buffer.alloc(0);
  expect([exit.length, exit[0], exit.readInt32BE(1)]).toEqual([5, 5, code]);
});

test("an error of the agent is text, then 1011", async () => {
  const { client, stream } = await terminal();
  stream.send(6, "the agent lost the terminal");
  expect(await client.closed).toBe(1011);
  expect(last(client)).toEqual([6, ...Buffer.from("the agent lost the terminal")]);
});

test.each([
  ["ends without an exit", (socket: { end(): void }) => socket.end()],
  ["breaks off", (socket: { destroy(): void }) => socket.destroy()],
])("a stream that %s is an error, never an exit", async (_title, fault) => {
  const { client, stream } = await terminal();
  stream.send(1, "x");
  await eventually(() => expect(client.text).toBe("x"));
  fault(stream.socket as never);
  expect(await client.closed).toBe(1011);
  expect(client.messages.map((message) => message[0])).toEqual([1, 6]);
});

test("malformed frames of the machine are an error", async () => {
  const { client, stream } = await terminal();
  stream.socket.write(Buffer.from([1, 0xff, 0xff, 0xff, 0xff]));
  expect(await client.closed).toBe(1011);
  expect(last(client)[0]).toBe(6);
});

test.each(["pty", "tunnel"])("a text message closes a %s with 1003", async (kind) => {
  const { client, stream } = kind === "pty" ? await terminal() : await tunnel();
  client.webSocket.send("text");
  expect(await client.closed).toBe(1003);
  await stream.gone;
});

test.each(["pty", "tunnel"])("a message over 1 MiB and 64 bytes closes a %s with 1009", async (kind) => {
  const fits = kind === "pty" ? await terminal() : await tunnel();
  fits.client.webSocket.send(Buffer.alloc(LIMITS.webSocketMessageBytes, 1));
  const expected = LIMITS.webSocketMessageBytes - (kind === "pty" ? 1 : 0);
  await eventually(() =>
    expect(fits.stream.received.reduce((sum, { payload }) => sum + payload.length, 0)).toBe(expected),
  );
  fits.client.webSocket.send(Buffer.alloc(LIMITS.webSocketMessageBytes + 1, 1));
  expect(await fits.client.closed).toBe(1009);
});

test("no message to the client has more than 64 KiB, and nothing is lost", async () => {
  const { client, stream } = await terminal();
  const bytes = Buffer.from(Array.from({ length: 65_536 }, (_, index) => index % 251));
  for (let n = 0; n < 4; n++) stream.send(1, bytes);
  stream.exit(0);
  await client.closed;
  expect(Math.max(...client.messages.map(({ length }) => length))).toBeLessThanOrEqual(65_536);
  const data = client.messages.filter((message) => message[0] === 1).map((message) => message.subarray(1));
  expect(Buffer.concat(data).equals(Buffer.concat([bytes, bytes, bytes, bytes]))).toBe(true);
});

test("each connection is a terminal of its own, and one that its client leaves is hung up", async () => {
  const first = await terminal();
  const second = await terminal();
  expect(first.stream).not.toBe(second.stream);
  first.client.webSocket.close();
  await first.stream.gone;
  second.client.send(1, "still here");
  await eventually(() => expect(frames(second.stream)).toEqual([[1, "still here"]]));
  second.client.webSocket.terminate();
  await second.stream.gone;
});

test("the tunnel carries raw bytes both ways, and closing either side closes the other", async () => {
  const one = await tunnel();
  one.client.webSocket.send(Buffer.from("SSH-2.0-client\r\n"));
  one.client.webSocket.send(Buffer.from([0, 1, 2]));
  await eventually(() =>
    expect(Buffer.concat(one.stream.received.map(({ payload }) => payload)).toString("latin1")).toBe(
      "SSH-2.0-client\r\n\x00\x01\x02",
    ),
  );
  one.stream.socket.write("SSH-2.0-server\r\n");
  await eventually(() => expect(Buffer.concat(one.client.messages).toString()).toBe("SSH-2.0-server\r\n"));
  one.client.webSocket.close();
  await one.stream.gone;
  const two = await tunnel();
  two.stream.socket.end();
  expect(await two.client.closed).toBe(1000);
});

test("the tunnel gets the session's environment", async () => {
  const own = await control.createLive({ env: { A: "1" }, on_pty_detach: "keep_live" });
  const { client } = await tunnel(own);
  expect((await streamOf(control, own)).spec).toEqual({ env: { VIVARIUM_SESSION_ID: own, A: "1" } });
  client.webSocket.terminate();
});

test("a client that does not read holds the terminal back instead of filling memory", async () => {
  const { client, stream } = await terminal();
  client.webSocket.pause();
  const block = Buffer.alloc(60_000);
  let sent = 0;
  let isGone = false;
  void stream.gone.then(() => {
    isGone = true;
  });
  void (async () => {
    while (!isGone && sent < 300_000_000) {
      sent += block.length;
      if (!stream.send(1, block))
        await Promise.race([new Promise((resolve) => stream.socket.once("drain", resolve)), stream.gone]);
    }
  })();
  await eventually(async () => {
    const before = sent;
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect([sent > 0, sent - before]).toEqual([true, 0]);
  });
  expect(sent).toBeLessThan(30_000_000);
  client.webSocket.terminate();
});

test("a machine that does not read holds the client back, and gets everything once it does", async () => {
  const { client, stream } = await tunnel();
  stream.socket.pause();
  const block = Buffer.alloc(60_000, 7);
  let sent = 0;
  const pump = async () => {
    for (; sent < 20_000_000; sent += block.length) {
      await new Promise<void>((resolve) => client.webSocket.send(block, () => resolve()));
    }
  };
  const pumped = pump();
  await eventually(async () => {
    const before = sent;
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect([sent > 0, sent - before]).toEqual([true, 0]);
  });
  expect(sent).toBeLessThan(15_000_000);
  stream.socket.resume();
  await pumped;
  await eventually(() =>
    expect(stream.received.reduce((sum, { payload }) => sum + payload.length, 0)).toBe(sent),
  );
  client.webSocket.terminate();
});

test.each(["pty", "tunnel"])("a pause closes a %s with 1001", async (kind) => {
  const own = await control.createLive({ on_pty_detach: "keep_live" });
  const { client } = kind === "pty" ? await terminal(own) : await tunnel(own);
  expect((await control.ask(`POST /v1/sessions/${own}/pause`)).status).toBe(200);
  expect(await client.closed).toBe(1001);
  expect(client.messages).toEqual([]);
});

test("a pause whose machine ends the stream first closes with 1001 as well", async () => {
  const own = await control.createLive({ on_pty_detach: "keep_live" });
  const { client, stream } = await terminal(own);
  control.node.onSnapshot = () => void stream.socket.destroy();
  await control.ask(`POST /v1/sessions/${own}/pause`);
  control.node.onSnapshot = () => {};
  expect(await client.closed).toBe(1001);
});

test("a pause that another process carried out closes with 1001", async () => {
  const own = await control.createLive({ on_pty_detach: "keep_live" });
  const { client } = await terminal(own);
  await control.sql.query(
    "update sessions set state = 'paused', paused_at = now(), snapshot_id = 'pau_x' where id = $1",
    [own],
  );
  expect(await client.closed).toBe(1001);
});

test.each(["pty", "tunnel"])("DELETE closes a %s with 1001", async (kind) => {
  const own = await control.createLive({ on_pty_detach: "keep_live" });
  const { client } = kind === "pty" ? await terminal(own) : await tunnel(own);
  expect((await control.ask(`DELETE /v1/sessions/${own}`)).status).toBe(204);
  expect(await client.closed).toBe(1001);
});

test("traffic moves last_active_at", async () => {
  const { client, stream } = await terminal();
  const lastActive = async () => (await control.ask(`GET /v1/sessions/${id}`)).body.last_active_at as string;
  for (const act of [() => client.send(1, "x"), () => stream.send(1, "y")]) {
    const before = await lastActive();
    await new Promise((resolve) => setTimeout(resolve, 20));
    act();
    await eventually(async () => expect((await lastActive()) > before).toBe(true));
  }
  client.webSocket.terminate();
});

test.each(["pty", "tunnel"])(
  "a client of a %s that answers no ping is dropped, one that does is not",
  async (kind) => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] });
    try {
      const [silent, quiet] =
        kind === "pty" ? [await terminal(), await terminal()] : [await tunnel(), await tunnel()];
      let isDropped = false;
      silent.stream.socket.once("close", () => {
        isDropped = true;
      });
      // It has stopped reading, so it answers nothing either.
      silent.client.webSocket.pause();
      for (let passed = 0; passed <= LIMITS.webSocketSilenceMs; passed += LIMITS.webSocketPingMs / 5) {
        expect(isDropped).toBe(false);
        vi.advanceTimersByTime(LIMITS.webSocketPingMs / 5);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      await eventually(() => expect(isDropped).toBe(true));
      expect(quiet.client.webSocket.readyState).toBe(quiet.client.webSocket.OPEN);
      silent.client.webSocket.resume();
      expect(await silent.client.closed).toBe(1006);
      quiet.client.webSocket.terminate();
    } finally {
      vi.useRealTimers();
    }
  },
);
