import type { IncomingMessage, ServerResponse } from "node:http";
import { expect, onTestFinished, test, vi } from "vitest";
import { json, serve } from "../test-support/server.ts";

const event = (n: number, type = "session.paused") => ({
  id: `evt_${n}`,
  type,
  created_at: "2027-03-01T09:30:00.125Z",
  org_id: "org_1",
  session_id: "s1",
  data: {},
});
const frame = (each: object & { id: string; type: string }) =>
  `id: ${each.id}\nevent: ${each.type}\ndata: ${JSON.stringify(each)}\n\n`;

type Connection = (response: ServerResponse, close: () => void) => void;

/** Answers connections one after the other as scripted; the last answer repeats. */
async function streaming(...connections: Connection[]) {
  const seen: { url: string | undefined; lastId: string | string[] | undefined }[] = [];
  const served = await serve((request: IncomingMessage, response) => {
    seen.push({ url: request.url, lastId: request.headers["last-event-id"] });
    const connection = connections[Math.min(seen.length, connections.length) - 1];
    connection?.(response, () => response.destroy());
  });
  return { ...served, seen };
}

const open = (response: ServerResponse) => response.writeHead(200, { "content-type": "text/event-stream" });
const sends =
  (...texts: string[]): Connection =>
  (response) =>
    void open(response).write(texts.join(""));
const sendsAndBreaks =
  (...texts: string[]): Connection =>
  (response, close) =>
    void open(response).write(texts.join(""), () => setTimeout(close, 20));
const refuses =
  (status: number, code: string): Connection =>
  (response) =>
    json(response, { error: "no", code }, status);

async function take(events: AsyncIterable<{ id: string }>, count: number): Promise<string[]> {
  const ids: string[] = [];
  for await (const { id } of events) {
    ids.push(id);
    if (ids.length === count) break;
  }
  return ids;
}

test("events come as they happen, as they were sent", async () => {
  const { client, seen } = await streaming(
    sends("id: evt_0\n\n", ": hb\n\n", frame(event(1)), frame(event(2))),
  );
  const got: unknown[] = [];
  for await (const each of client.events.follow({
    types: ["session.*", "preview.exposed"],
    sessionId: "s1",
  })) {
    got.push(each);
    if (got.length === 2) break;
  }
  expect(got).toEqual([event(1), event(2)]);
  expect(seen).toEqual([
    { url: "/v1/events?types=session.*%2Cpreview.exposed&session_id=s1", lastId: undefined },
  ]);
});

test("a connection that breaks is made again from the last event", async () => {
  const { client, seen } = await streaming(
    sendsAndBreaks(frame(event(1)), frame(event(2)), "id: evt_3\nevent: session.pau"),
    refuses(503, "unavailable"),
    sendsAndBreaks(),
    sends(frame(event(3))),
  );
  expect(await take(client.events.follow({ after: "evt_0" }), 3)).toEqual(["evt_1", "evt_2", "evt_3"]);
  expect(seen.map(({ lastId }) => lastId)).toEqual(["evt_0", "evt_2", "evt_2", "evt_2"]);
});

test("a stream that the service ends is made again", async () => {
  const ends: Connection = (response) => void open(response).end(frame(event(1)));
  const { client, seen } = await streaming(ends, sends(frame(event(2))));
  expect(await take(client.events.follow(), 2)).toEqual(["evt_1", "evt_2"]);
  expect(seen[1]?.lastId).toBe("evt_1");
});

test("a connection that breaks before the first event resumes where it began", async () => {
  const { client, seen } = await streaming(sendsAndBreaks("id: evt_7\n\n"), sends(frame(event(8))));
  expect(await take(client.events.follow(), 1)).toEqual(["evt_8"]);
  expect(seen.map(({ lastId }) => lastId)).toEqual([undefined, "evt_7"]);
});

test("a gap is passed on, and is no place to resume from", async () => {
  const gap = { ...event(99, "stream.gap"), data: { oldest_id: "evt_5" } };
  const { client, seen } = await streaming(
    sendsAndBreaks(`event: stream.gap\ndata: ${JSON.stringify(gap)}\n\n`),
    sends(frame(event(5))),
  );
  expect(await take(client.events.follow({ after: "evt_1" }), 2)).toEqual(["evt_99", "evt_5"]);
  expect(seen.map(({ lastId }) => lastId)).toEqual(["evt_1", "evt_1"]);
});

test("a refusal ends the loop, at once or after a break", async () => {
  const first = await streaming(refuses(401, "unauthenticated"));
  await expect(take(first.client.events.follow(), 1)).rejects.toMatchObject({ code: "unauthenticated" });
  expect(first.seen).toHaveLength(1);
  const later = await streaming(sendsAndBreaks(frame(event(1))), refuses(401, "unauthenticated"));
  await expect(take(later.client.events.follow(), 2)).rejects.toMatchObject({ code: "unauthenticated" });
});

test("a service that was never there is an error", async () => {
  const { client, close } = await streaming(sends());
  close();
  await expect(take(client.events.follow(), 1)).rejects.toMatchObject({ code: "connection_refused" });
});

test("an abort ends the loop with its reason, while it waits and between connections", async () => {
  for (const connection of [sends(frame(event(1))), sendsAndBreaks(frame(event(1)))]) {
    const { client } = await streaming(connection);
    const stop = new AbortController();
    const loop = async () => {
      for await (const _event of client.events.follow({}, { signal: stop.signal }))
        stop.abort(new Error("enough"));
    };
    await expect(loop()).rejects.toThrow("enough");
  }
});

/** Silence that counts as lost after 45 s counts after 300 ms here. */
function shortenSilence(): void {
  const setTimer = globalThis.setTimeout;
  const spied = vi.spyOn(globalThis, "setTimeout");
  spied.mockImplementation(((run: () => void, ms: number) =>
    setTimer(run, ms === 45_000 ? 300 : ms)) as never);
  onTestFinished(() => void vi.restoreAllMocks());
}

test("a service that takes the connection and never answers is lost like any other", async () => {
  shortenSilence();
  const silent: Connection = () => undefined;
  const { client, seen } = await streaming(sendsAndBreaks(frame(event(1))), silent, sends(frame(event(2))));
  expect(await take(client.events.follow(), 2)).toEqual(["evt_1", "evt_2"]);
  expect(seen).toHaveLength(3);
  const first = await streaming(silent);
  await expect(take(first.client.events.follow(), 1)).rejects.toMatchObject({ code: "connection_failed" });
});

test("a service that asks to wait for longer than it may be silent is waited for", async () => {
  shortenSilence();
  const busy: Connection = (response) => {
    response.writeHead(429, { "content-type": "application/json", "retry-after": "1" });
    response.end(JSON.stringify({ error: "busy", code: "rate_limited" }));
  };
  const { client, seen } = await streaming(busy, sends(frame(event(1))));
  expect(await take(client.events.follow(), 1)).toEqual(["evt_1"]);
  expect(seen).toHaveLength(2);
});

test("leaving the loop closes the connection", async () => {
  let isClosed = false;
  const { client } = await streaming((response) => {
    response.on("close", () => {
      isClosed = true;
    });
    sends(frame(event(1)))(response, () => undefined);
  });
  await take(client.events.follow(), 1);
  await expect.poll(() => isClosed).toBe(true);
});

test("leaving the loop leaves no timer behind that keeps the program from ending", async () => {
  const started = vi.spyOn(globalThis, "setTimeout");
  const ended = vi.spyOn(globalThis, "clearTimeout");
  onTestFinished(() => void vi.restoreAllMocks());
  const { client } = await streaming(sends(frame(event(1))));
  await take(client.events.follow(), 1);
  const watches = started.mock.results.filter((_, i) => started.mock.calls[i]?.[1] === 45_000);
  expect(watches.length).toBeGreaterThan(0);
  const isEnded = ({ value }: { value: unknown }) => ended.mock.calls.some(([timer]) => timer === value);
  await expect.poll(() => watches.every(isEnded)).toBe(true);
});

test("kept events come page after page", async () => {
  const seen: (string | undefined)[] = [];
  const { client } = await serve((request, response) => {
    seen.push(`${request.headers.accept} ${request.url}`);
    json(response, seen.length === 1 ? { events: [event(1)], next_cursor: "c" } : { events: [event(2)] });
  });
  const list = client.events.list({ after: "evt_0", types: ["session.*"], pageSize: 1 });
  expect((await Array.fromAsync(list)).map(({ id }) => id)).toEqual(["evt_1", "evt_2"]);
  expect(seen).toEqual([
    "application/json /v1/events?types=session.*&limit=1&after=evt_0",
    "application/json /v1/events?types=session.*&limit=1&cursor=c",
  ]);
});
