import { connect, createServer } from "node:net";
import { pipeline } from "node:stream";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  type Exposed,
  expose,
  type Gateway,
  type Guest,
  get,
  NAVIGATION,
  type Reply,
  startGateway,
  startGuest,
  stopGuest,
} from "../../test-support/previews.ts";

let gateway: Gateway;
let guest: Guest;

beforeEach(async () => {
  gateway = await startGateway({ holdMs: 2_000 * SLOWNESS });
  guest = await startGuest((request, response) => response.end(`awake ${request.url}`));
});

afterEach(async () => {
  await gateway.previews.close();
  await stopGuest(guest);
});

const becomeLive = ({ route }: Exposed) => {
  gateway.tables.addMachine(route.session_id, guest.address);
  gateway.tables.putRoute({ ...route, state: "live" });
};

describe("a paused preview", () => {
  test("is woken once for a thousand visitors, who are all answered (P-10)", async () => {
    await gateway.previews.close();
    // A busy host takes its time to bring a thousand here, and from here to the guest.
    gateway = await startGateway({ holdMs: 60_000 * SLOWNESS, lineMs: 60_000 * SLOWNESS });
    const preview = expose(gateway, guest, { state: "paused", visibility: "public" });
    let wakeUp: () => void = () => undefined;
    gateway.onWake = () =>
      new Promise((resolve) => {
        wakeUp = () => {
          becomeLive(preview);
          resolve({ result: "live" });
        };
      });
    const asked = Array.from({ length: 1_000 }, (_, i) => get(gateway, preview.host, `/${i}`));
    // A later visitor is answered after them, once the session has woken.
    const { host } = expose(gateway, guest, { visibility: "public" });
    expect((await get(gateway, host, "/after")).body).toBe("awake /after");
    wakeUp();
    const replies = await Promise.all(asked);
    expect(replies.map(({ body }) => body)).toEqual(replies.map((_, i) => `awake /${i}`));
    expect(gateway.wakes).toEqual([preview.route.session_id]);
  });

  test("is answered also when the tables that show it live come after the wake's outcome", async () => {
    const preview = expose(gateway, guest, { state: "paused", visibility: "public" });
    gateway.onWake = async () => {
      setTimeout(() => becomeLive(preview), 100);
      return { result: "live" };
    };
    expect((await get(gateway, preview.host, "/late")).body).toBe("awake /late");
    expect(gateway.wakes).toHaveLength(1);
  });

  test("whose wake is refused is 503 with Retry-After, and refusals make no storm of wakes", async () => {
    const preview = expose(gateway, guest, { state: "paused", visibility: "public" });
    const statuses = new Set<number>();
    const began = performance.now();
    for (let i = 0; i < 50; i++) {
      const reply = await get(gateway, preview.host);
      statuses.add(reply.status);
      expect(reply.headers["retry-after"]).toBe("7");
    }
    expect([...statuses]).toEqual([503]);
    // A refusal is reused for two seconds, and a slow host takes longer for all of them.
    const most = 1 + Math.floor((performance.now() - began) / 2_000);
    expect(gateway.wakes.length).toBeGreaterThan(0);
    expect(gateway.wakes.length).toBeLessThanOrEqual(most);
  });

  test.each([
    [404, "There is no preview here"],
    [410, "This preview is over"],
  ] as const)("whose wake ends in %s says so", async (status, title) => {
    const preview = expose(gateway, guest, { state: "paused", visibility: "public" });
    gateway.onWake = async () => ({ result: "refused", status });
    const reply = await get(gateway, preview.host, "/", { headers: NAVIGATION });
    expect(reply.status).toBe(status);
    expect(reply.body).toContain(title);
  });

  test("whose wake cannot even be asked for is 503", async () => {
    const preview = expose(gateway, guest, { state: "paused", visibility: "public" });
    gateway.onWake = () => Promise.reject(new Error("no node"));
    const reply = await get(gateway, preview.host);
    expect([reply.status, reply.headers["retry-after"]]).toEqual([503, "5"]);
  });

  test("that takes longer than the hold shows browsers a page that tries again, programs a 503", async () => {
    const preview = expose(gateway, guest, { state: "paused", visibility: "public" });
    gateway.onWake = () => new Promise(() => undefined);
    const replies: Reply[] = await Promise.all([
      get(gateway, preview.host, "/", { headers: NAVIGATION }),
      get(gateway, preview.host),
    ]);
    expect(replies.map(({ status }) => status)).toEqual([503, 503]);
    expect(replies[0]?.body).toContain('http-equiv="refresh" content="2"');
    expect(replies[1]?.headers["retry-after"]).toBe("2");
    expect(gateway.wakes).toHaveLength(1);
  });

  test("that was paused a moment ago, under its visitors, is woken for them", async () => {
    const preview = expose(gateway, guest, { visibility: "public" });
    // The server in it no longer answers, as in a stopped machine.
    const stopped = await startGuest(() => undefined);
    gateway.tables.addMachine(preview.route.session_id, stopped.address);
    const at = { ...preview.route, port: stopped.port };
    gateway.tables.putRoute(at);
    const host = `${stopped.port}-${preview.route.session_id}.localhost:${gateway.port}`;
    gateway.onWake = async (sessionId) => {
      // The machine that was woken listens on the same port.
      const woken = await startGuest((request, response) => response.end(`again ${request.url}`));
      const forward = createServer((from) =>
        pipeline(from, connect(woken.port, woken.address), from, () => {}),
      );
      await new Promise<void>((resolve) => forward.listen(stopped.port, woken.address, resolve));
      gateway.tables.addMachine(sessionId, woken.address, `${sessionId}-2`);
      gateway.tables.putRoute({ ...at, state: "live" });
      return { result: "live" };
    };
    const asked = get(gateway, host, "/asked");
    const posted = get(gateway, host, "/posted", { method: "POST", body: "once" });
    while (stopped.heads.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
    gateway.tables.putRoute({ ...at, state: "paused" });
    expect(await asked).toMatchObject({ status: 200, body: "again /asked" });
    // The guest may have received it already: the client decides whether to send it again.
    expect(await posted).toMatchObject({ status: 503, headers: { "retry-after": "5" } });
    expect(gateway.wakes).toHaveLength(1);
    await stopGuest(stopped);
  });

  test("wakes for nobody whom the gate would not let in, nor where requests may not wake it", async () => {
    const closed = expose(gateway, guest, { state: "paused" });
    const asleep = expose(gateway, guest, { state: "paused", visibility: "public", wake_on_http: false });
    expect((await get(gateway, closed.host)).status).toBe(404);
    expect((await get(gateway, closed.host, `/?t=${closed.token}`, { headers: NAVIGATION })).status).toBe(
      302,
    );
    expect((await get(gateway, asleep.host)).status).toBe(404);
    expect(gateway.wakes).toEqual([]);
  });
});

describe("a preview whose session cannot be woken", () => {
  test.each([
    ["gone", 410],
    ["unavailable", 503],
  ] as const)(
    "because it is %s is %i for those who are let in, and woken for nobody",
    async (state, status) => {
      const preview = expose(gateway, guest, { state });
      expect((await get(gateway, preview.host, `/?t=${preview.token}`)).status).toBe(status);
      expect((await get(gateway, preview.host)).status).toBe(404);
      expect(gateway.wakes).toEqual([]);
    },
  );

  test("because no machine shows up although it is said to be live is 503", async () => {
    const preview = expose(gateway, guest, { visibility: "public" });
    gateway.tables.change({ slots: [] });
    expect((await get(gateway, preview.host)).status).toBe(503);
  });
});
