import { fastify } from "fastify";
import { afterAll, afterEach, expect, test, vi } from "vitest";
import { EventStream } from "./sse.ts";

const HEARTBEAT_MS = 60;
const server = fastify();
afterEach(() => vi.useRealTimers());
afterAll(() => server.close());

test("silence is filled with comments, and only silence", async () => {
  server.get("/", async (_request, reply) => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    const events = new EventStream(reply, HEARTBEAT_MS);
    vi.advanceTimersByTime(HEARTBEAT_MS - 1);
    await events.send("stdout", "");
    vi.advanceTimersByTime(HEARTBEAT_MS - 1);
    await events.send("stdout", "");
    vi.advanceTimersByTime(2 * HEARTBEAT_MS);
    await events.send("exit", "{}");
    events.end();
    vi.advanceTimersByTime(2 * HEARTBEAT_MS);
    return reply;
  });
  const { body } = await server.inject("/");
  expect(body).toBe(
    "event: stdout\ndata: \n\nevent: stdout\ndata: \n\n: hb\n\n: hb\n\nevent: exit\ndata: {}\n\n",
  );
});
