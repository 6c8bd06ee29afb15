import { LIMITS, PTY_FRAME } from "@vivarium/contract/api";
import { expect, onTestFinished, test } from "vitest";
import { type WebSocket, WebSocketServer } from "ws";
import { json, serve } from "../../test-support/server.ts";
import { frame } from "../../test-support/terminal-frame.ts";

/** The service's side of one WebSocket per test; `accept` receives it with the request's path and headers. */
async function serveWebSocket(
  accept: (webSocket: WebSocket, request: { url?: string; authorization?: string }) => void,
) {
  const harness = await serve((_request, response) => json(response, {}, 500));
  const webSockets = new WebSocketServer({ noServer: true });
  harness.server.on("upgrade", (request, socket, head) =>
    webSockets.handleUpgrade(request, socket, head, (webSocket) => {
      webSocket.on("error", () => undefined);
      accept(webSocket, { url: request.url, authorization: request.headers.authorization });
    }),
  );
  onTestFinished(() => {
    for (const client of webSockets.clients) client.terminate();
  });
  return harness;
}

const exitFrame = (code: number) => {
  const payload = Buffer.alloc(4);
  payload.writeInt32BE(code);
  return frame(PTY_FRAME.exit, payload);
};
const textOf = async (output: AsyncIterable<Uint8Array>) =>
  Buffer.concat(await Array.fromAsync(output)).toString();

test("a terminal is opened with the key and what it is asked for", async () => {
  const { promise: asked, resolve: ask } = Promise.withResolvers<unknown>();
  const { session } = await serveWebSocket((_webSocket, request) => ask(request));
  await using _terminal = await session.terminal({
    rows: 40,
    cols: 120,
    cmd: ["sh", "-c", "echo a b"],
    cwd: "/tmp",
    term: "xterm",
    colorterm: "truecolor",
    terminal: "main",
  });
  expect(await asked).toEqual({
    url: "/v1/sessions/s1/pty?rows=40&cols=120&cmd=sh&cmd=-c&cmd=echo+a+b&cwd=%2Ftmp&term=xterm&colorterm=truecolor&terminal=main",
    authorization: "Bearer viv_test",
  });
});

test("a refused terminal leaves no connection open", async () => {
  const { session, server } = await serve((_request, response) =>
    json(response, { error: "there is none", code: "not_found" }, 404),
  );
  server.keepAliveTimeout = 120_000;
  await expect(session.terminal()).rejects.toMatchObject({ code: "not_found" });
  const open = () =>
    new Promise((resolve) => server.getConnections((_error, connections) => resolve(connections)));
  await expect.poll(open).toBe(0);
});

test("output that comes with the handshake is not lost, and the exit code comes after it", async () => {
  const { session } = await serveWebSocket((webSocket) => {
    webSocket.send(frame(PTY_FRAME.data, "hello "));
    webSocket.send(frame(0x7f, "unknown"));
    webSocket.send(frame(PTY_FRAME.data, "world"));
    webSocket.send(exitFrame(130));
    webSocket.close(1000);
  });
  const terminal = await session.terminal();
  expect(await textOf(terminal)).toBe("hello world");
  expect(await terminal.exit).toBe(130);
});

test("input, sizes and signals are the frames of the interface", async () => {
  const seen: number[][] = [];
  const { session } = await serveWebSocket((webSocket) => {
    webSocket.on("message", (message: Buffer) => {
      seen.push([...message]);
      if (message[0] === PTY_FRAME.signal) webSocket.send(exitFrame(0));
    });
  });
  const terminal = await session.terminal();
  await terminal.write("é\n");
  await terminal.write(Uint8Array.of(3));
  await terminal.resize(258, 80);
  await terminal.signal(2);
  expect(await terminal.exit).toBe(0);
  expect(seen).toEqual([
    [PTY_FRAME.data, 0xc3, 0xa9, 10],
    [PTY_FRAME.data, 3],
    [PTY_FRAME.resize, 1, 2, 0, 80],
    [PTY_FRAME.signal, 2],
  ]);
});

test("long input comes in order, in messages that the service takes, as fast as it reads", async () => {
  const { promise: opened, resolve: open } = Promise.withResolvers<WebSocket>();
  const got: Buffer[] = [];
  const { session } = await serveWebSocket((webSocket) => {
    webSocket.pause();
    webSocket.on("message", (message: Buffer) => got.push(message));
    open(webSocket);
  });
  const terminal = await session.terminal();
  const input = Buffer.alloc(32 * 1024 * 1024, "0123456789");
  let isTaken = false;
  const written = terminal.write(input).then(() => {
    isTaken = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(isTaken).toBe(false);
  (await opened).resume();
  await written;
  await terminal.close();
  expect(Buffer.concat(got.map((message) => message.subarray(1))).equals(input)).toBe(true);
  expect(Math.max(...got.map(({ length }) => length))).toBeLessThanOrEqual(LIMITS.webSocketMessageBytes);
});

test("unread output pauses the service; all of it arrives once it is read", async () => {
  const piece = frame(PTY_FRAME.data, Buffer.alloc(64 * 1024, "x"));
  const pieces = 512;
  let sent = 0;
  const sendAll = async (webSocket: WebSocket) => {
    for (; sent < pieces; sent++) await new Promise((resolve) => webSocket.send(piece, resolve));
    webSocket.send(exitFrame(0));
  };
  const { session } = await serveWebSocket((webSocket) => void sendAll(webSocket));
  const terminal = await session.terminal();
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(sent).toBeLessThan(pieces / 2);
  let bytes = 0;
  for await (const chunk of terminal) bytes += chunk.length;
  expect(bytes).toBe(pieces * 64 * 1024);
  expect(await terminal.exit).toBe(0);
});

test("leaving a loop leaves the terminal open, and another loop continues", async () => {
  const { session } = await serveWebSocket((webSocket) => {
    webSocket.send(frame(PTY_FRAME.data, "$ "));
    webSocket.on("message", () => {
      webSocket.send(frame(PTY_FRAME.data, "done"));
      webSocket.send(exitFrame(0));
    });
  });
  const terminal = await session.terminal();
  for await (const prompt of terminal) {
    expect(Buffer.from(prompt).toString()).toBe("$ ");
    break;
  }
  await terminal.write("exit\n");
  expect(await textOf(terminal)).toBe("done");
});

test.each([
  ["a pause", (webSocket: WebSocket) => webSocket.close(1001), /paused or destroyed/],
  ["a fault", (webSocket: WebSocket) => webSocket.close(1011, "boom"), /boom/],
  ["a lost connection", (webSocket: WebSocket) => webSocket.terminate(), /lost/],
  [
    "an error frame",
    (webSocket: WebSocket) => {
      webSocket.send(frame(PTY_FRAME.error, "the agent is gone"));
      webSocket.close(1011);
    },
    /the agent is gone/,
  ],
])("after %s the output is given out, then it is an error", async (_what, end, message) => {
  const { session } = await serveWebSocket((webSocket) =>
    webSocket.send(frame(PTY_FRAME.data, "before"), () => setTimeout(() => end(webSocket), 50)),
  );
  const terminal = await session.terminal();
  const output = terminal[Symbol.asyncIterator]();
  expect(Buffer.from((await output.next()).value ?? []).toString()).toBe("before");
  await expect(output.next()).rejects.toMatchObject({
    code: "disconnected",
    message: expect.stringMatching(message),
  });
  await expect(terminal.exit).rejects.toMatchObject({ code: "disconnected" });
  await expect(terminal.write("x")).rejects.toMatchObject({ code: "disconnected" });
});

test("closing says 1000, ends the output and rejects the exit", async () => {
  const { promise: closed, resolve: close } = Promise.withResolvers<number>();
  const { session } = await serveWebSocket((webSocket) => webSocket.on("close", close));
  const terminal = await session.terminal();
  const output = textOf(terminal);
  await terminal.close();
  await terminal.close();
  expect(await output).toBe("");
  expect(await closed).toBe(1000);
  await expect(terminal.exit).rejects.toMatchObject({ code: "disconnected" });
});

test("aborting ends an open terminal and one that is being opened", async () => {
  const { session } = await serveWebSocket(() => undefined);
  const abort = new AbortController();
  const terminal = await session.terminal({ signal: abort.signal });
  abort.abort();
  await expect(textOf(terminal)).rejects.toMatchObject({ name: "AbortError" });
  await expect(terminal.exit).rejects.toMatchObject({ name: "AbortError" });
  await expect(session.terminal({ signal: abort.signal })).rejects.toMatchObject({ name: "AbortError" });
  const silent = await serve(() => undefined);
  silent.server.on("upgrade", () => undefined);
  const opening = silent.session.terminal({ signal: AbortSignal.timeout(50) });
  await expect(opening).rejects.toMatchObject({ name: "TimeoutError" });
});

test("a refusal before the upgrade is the error of the interface, repeated where it asks for it", async () => {
  let requests = 0;
  const { session, waits } = await serve((request, response) => {
    requests++;
    if (request.url?.endsWith("tunnel")) json(response, { error: "gone", code: "not_found" }, 404);
    else json(response, { error: "16 are open", code: "rate_limited" }, 429, { "retry-after": "2" });
  });
  await expect(session.terminal()).rejects.toMatchObject({
    code: "rate_limited",
    status: 429,
    message: "16 are open",
    retryable: true,
  });
  expect([requests, waits]).toEqual([4, [2000, 2000, 2000]]);
  await expect(session.tunnel()).rejects.toMatchObject({ code: "not_found", retryable: false });
  expect(requests).toBe(5);
});

test("nothing that listens is connection_refused, and it is not tried again", async () => {
  const { session, close, waits } = await serve(() => undefined);
  close();
  await expect(session.terminal()).rejects.toMatchObject({ code: "connection_refused" });
  expect(waits).toEqual([]);
});

test("a tunnel carries raw bytes both ways, of any size, until either side ends it", async () => {
  const { promise: closed, resolve: close } = Promise.withResolvers<number>();
  const { session } = await serveWebSocket((webSocket, { url }) => {
    expect(url).toBe("/v1/sessions/s1/tunnel");
    webSocket.send("SSH-2.0-guest\r\n");
    webSocket.on("message", (message: Buffer) => webSocket.send(message));
    webSocket.on("close", close);
  });
  const tunnel = await session.tunnel();
  const sent = Buffer.alloc(3 * 1024 * 1024, "abc");
  tunnel.write(sent);
  const got: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of tunnel) {
    got.push(chunk);
    bytes += chunk.length;
    if (bytes === sent.length + 15) break;
  }
  expect(Buffer.concat(got).equals(Buffer.concat([Buffer.from("SSH-2.0-guest\r\n"), sent]))).toBe(true);
  expect(await closed).toBe(1006);
});

test("a tunnel that ends well ends, one that the service breaks off is an error", async () => {
  const well = await serveWebSocket((webSocket) => webSocket.send("bye", () => webSocket.close(1000)));
  expect(await textOf(await well.session.tunnel())).toBe("bye");
  const broken = await serveWebSocket((webSocket) => webSocket.close(1001));
  await expect(textOf(await broken.session.tunnel())).rejects.toMatchObject({ code: "disconnected" });
  const { promise: closed, resolve: close } = Promise.withResolvers<number>();
  const ended = await serveWebSocket((webSocket) => webSocket.on("close", close));
  const tunnel = await ended.session.tunnel();
  tunnel.end();
  expect(await textOf(tunnel)).toBe("");
  expect(await closed).toBe(1000);
});
