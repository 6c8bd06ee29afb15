import { fastify } from "fastify";
import { afterAll, expect, test } from "vitest";
import { EventStream } from "./sse.ts";

const server = fastify();
afterAll(() => server.close());

test("silence is filled with comments, and only silence", async () => {
  server.get("/", async (_request, reply) => {
    const events = new EventStream(reply, 60);
    await events.send("stdout", "");
    await new Promise((resolve) => setTimeout(resolve, 150));
    await events.send("exit", "{}");
    events.end();
    return reply;
  });
  const { body } = await server.inject("/");
  expect(body).toBe("event: stdout\ndata: \n\n: hb\n\n: hb\n\nevent: exit\ndata: {}\n\n");
});
