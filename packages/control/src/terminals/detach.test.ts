/** The detach policy: what happens to a session when its clients leave. */

import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { withMortal } from "../../test-support/mortal-control.ts";
import { Client, connect, openPty, streamOf } from "../../test-support/terminal-client.ts";
import { TestClock } from "../../test-support/test-clock.ts";
import { type App, createApp } from "../app.ts";
import { DETACH_GRACE_MS } from "../deadlines/clocks.ts";

// Tests that run concurrently only wait.
vi.setConfig({ maxConcurrency: 5 });

let control: Control;
let clock: TestClock;
/** Sessions in the order in which they were paused. */
const captured: string[] = [];
beforeAll(async () => {
  control = await startControl();
  await control.sql.query("update orgs set concurrent_sessions = 100");
  clock = await TestClock.install(control.sql);
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
  watchNode();
});
afterAll(() => control.close());

const sessionOf = (machineId: string) => machineId.split("-", 1)[0] ?? "";
const pausesOf = (id: string) => captured.filter((one) => one === id).length;
/** Commands that run until the test ends them, by session. */
const held = new Map<string, { begun: () => void; ended: Promise<void> }>();
/** Sessions for which the node refuses terminals. */
const refusing = new Set<string>();

function watchNode(): void {
  const { node } = control;
  node.onSnapshot = (_id, spec) => void ("machine_id" in spec && captured.push(sessionOf(spec.machine_id)));
  node.onExec = async (_call, output) => {
    const command = held.get(sessionOf(node.execs.at(-1)?.machineId ?? ""));
    const running = output();
    command?.begun();
    await command?.ended;
    running.exit();
  };
  node.onStream = ({ machineId }, accept) => {
    if (refusing.has(sessionOf(machineId))) throw new Refusal("terminal_limit");
    accept();
  };
}

const read = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body;
/** Long enough for a policy to be applied. */
const graceAndMore = () => new Promise((resolve) => setTimeout(resolve, DETACH_GRACE_MS + 2_500));
/** The session was checked after its clients had left, and no policy applies: the next deadline is its maximum lifetime. */
async function isDoneWithLeave(id: string): Promise<boolean> {
  const { rows } = await control.sql.query(
    `select op is null and due_at > service_now() + interval '1 hour' and not exists (
       select from attachments where session_id = $1 and lease_until > now()) as done
     from sessions where id = $1 and state = 'live'`,
    [id],
  );
  return rows[0]?.done === true;
}
const openTunnel = (id: string) => connect(control, `/v1/sessions/${id}/tunnel`).opened();
const leave = async (client: Client) => {
  client.webSocket.close();
  await client.closed;
};
/** Stops reading, so that it does not see the server's close. */
const sayCloseAndStay = ({ webSocket }: Client) => {
  webSocket.pause();
  webSocket.close();
};
/** A command that runs until the test ends it. */
function holdCommand(id: string) {
  const begun = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<void>();
  held.set(id, { begun: begun.resolve, ended: ended.promise });
  return { begun: begun.promise, end: ended.resolve, answer: control.exec(id) };
}
async function endedRows(id: string) {
  const { body } = await control.ask("GET /v1/sessions?state=ended&limit=500");
  return body.sessions.filter((one: { session_id: string }) => one.session_id === id);
}

/** Lets 14 of the 15 seconds of a client's lease pass. */
async function letLeaseLapse(id: string): Promise<void> {
  const earlier = "- interval '14 seconds'";
  await control.sql.query(
    `update attachments set lease_until = lease_until ${earlier} where session_id = $1`,
    [id],
  );
  await control.sql.query(`update sessions set due_at = due_at ${earlier} where id = $1`, [id]);
}

// Each test waits for its own session, in real time.
describe.concurrent("together with others:", () => {
  describe("when the last terminal's client leaves", () => {
    test.each([
      ["closes", (client: Client) => client.webSocket.close()],
      ["vanishes", (client: Client) => client.webSocket.terminate()],
      ["says that it closes, and never hangs up", (client: Client) => sayCloseAndStay(client)],
    ])("by default the session is paused; the client %s", async (_how, go) => {
      const id = await control.createLive();
      go(await openPty(control, id));
      await control.until(id, "paused");
      expect(pausesOf(id)).toBe(1);
    });

    test("exit of the program is a leave", async () => {
      const id = await control.createLive({ on_pty_detach: "pause" });
      const client = await openPty(control, id);
      (await streamOf(control, id)).stream.exit(0);
      expect(await client.closed).toBe(1000);
      await control.until(id, "paused");
    });

    test("an error of the machine's side is a leave", async () => {
      const id = await control.createLive({ on_pty_detach: "pause" });
      const client = await openPty(control, id);
      (await streamOf(control, id)).stream.socket.destroy();
      expect(await client.closed).toBe(1011);
      await control.until(id, "paused");
    });

    test("with destroy the session ends, with a history row that says so", async () => {
      const id = await control.createLive({ on_pty_detach: "destroy" });
      await leave(await openPty(control, id));
      await eventually(async () => expect(await endedRows(id)).toHaveLength(1));
      expect((await endedRows(id))[0]).toMatchObject({ state: "ended", end_reason: "on_detach_destroy" });
      expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404);
      await eventually(() => expect(control.node.machines.has(`${id}-1`)).toBe(false));
    });

    test("with keep_live nothing happens", async () => {
      const id = await control.createLive({ on_pty_detach: "keep_live" });
      await leave(await openPty(control, id));
      await eventually(async () => expect(await isDoneWithLeave(id)).toBe(true));
      expect((await read(id)).state).toBe("live");
      expect(pausesOf(id)).toBe(0);
    });
  });

  test("the policy waits for the last of several clients", async () => {
    const id = await control.createLive();
    const [first, second] = [await openPty(control, id), await openPty(control, id)];
    await leave(first);
    await graceAndMore();
    expect((await read(id)).state).toBe("live");
    await leave(second);
    await control.until(id, "paused");
  });

  test("a client that attaches again before the policy was applied cancels it", async () => {
    const id = await control.createLive({ on_pty_detach: "destroy" });
    const client = await openPty(control, id);
    // A command in flight delays the policy, so the client may be slow to return.
    const command = holdCommand(id);
    await command.begun;
    await leave(client);
    const again = await openPty(control, id);
    command.end();
    expect((await command.answer).status).toBe(200);
    await graceAndMore();
    expect((await read(id)).state).toBe("live");
    await leave(again);
    await eventually(async () => expect((await endedRows(id))[0]?.end_reason).toBe("on_detach_destroy"));
  });

  test("a refused client does not count", async () => {
    const id = await control.createLive();
    refusing.add(id);
    await expect(openPty(control, id)).rejects.toThrow("429");
    refusing.delete(id);
    await graceAndMore();
    expect((await read(id)).state).toBe("live");
  });

  test("a session that was never attached to keeps its life, and so does one with tunnels only", async () => {
    const id = await control.createLive({ on_pty_detach: "destroy" });
    await control.exec(id);
    await leave(await openTunnel(id));
    await graceAndMore();
    expect((await read(id)).state).toBe("live");
  });

  test("the policy waits for a command in flight", async () => {
    const id = await control.createLive();
    const client = await openPty(control, id);
    const command = holdCommand(id);
    await command.begun;
    await leave(client);
    await graceAndMore();
    expect((await read(id)).state).toBe("live");
    command.end();
    expect((await command.answer).status).toBe(200);
    await control.until(id, "paused");
  });

  test("the policy waits for a tunnel", async () => {
    const id = await control.createLive();
    const [terminal, tunnel] = [await openPty(control, id), await openTunnel(id)];
    await leave(terminal);
    await graceAndMore();
    expect((await read(id)).state).toBe("live");
    await leave(tunnel);
    await control.until(id, "paused");
  });

  test("it applies once: a session that is woken afterwards stays awake", async () => {
    const id = await control.createLive();
    await leave(await openPty(control, id));
    await control.until(id, "paused");
    await control.exec(id);
    await graceAndMore();
    expect((await read(id)).state).toBe("live");
    await leave(await openPty(control, id));
    await control.until(id, "paused");
    expect(pausesOf(id)).toBe(2);
  });

  test("a shutdown says goodbye with 1001, and the policy applies all the same", async () => {
    const ending = await createApp(control.settings, silentLog);
    const address = await ending.server.listen({ host: "127.0.0.1", port: 0 });
    const id = await control.createLive();
    const url = `${address.replace("http", "ws")}/v1/sessions/${id}/pty`;
    const client = await new Client(url, control.key).opened();
    await ending.close();
    expect(await client.closed).toBe(1001);
    await control.until(id, "paused");
  });

  test("an attached client that is gone leaves its session to the idle timeout, which counts from then on", async () => {
    const id = await control.createLive({ idle_timeout_ms: 1_000, on_pty_detach: "keep_live" });
    const client = await openTunnel(id);
    await new Promise((resolve) => setTimeout(resolve, 4_000));
    expect((await read(id)).state).toBe("live");
    await leave(client);
    await control.until(id, "paused");
  });
});

test("33 clients that come and go at once bring about one pause, and so does the next storm", async () => {
  const id = await control.createLive();
  for (const pauses of [1, 2]) {
    const clients = await Promise.all(
      Array.from({ length: 33 }, async (_, n) => {
        const client = await openPty(control, id);
        client.send(1, "x");
        if (n % 2 === 0) await leave(client);
        return client;
      }),
    );
    // Half of them stay until all have come: on a slow host the session would otherwise be without clients for long.
    for (const [n, client] of clients.entries()) if (n % 2 === 1) client.webSocket.terminate();
    await control.until(id, "paused");
    await graceAndMore();
    expect(pausesOf(id)).toBe(pauses);
  }
});

test("33 clients that come and go at once end a session once", async () => {
  const id = await control.createLive({ on_pty_detach: "destroy" });
  const last = await openPty(control, id);
  await Promise.all(Array.from({ length: 32 }, async () => leave(await openPty(control, id))));
  // Until all have come: on a slow host the session would otherwise be without clients for long.
  await leave(last);
  await eventually(async () => expect(await endedRows(id)).toHaveLength(1));
});

test("the death of the process that served the last client is its leave", async () => {
  const id = await control.createLive();
  await withMortal(control, "", async (mortal) => {
    const client = await new Client(`ws://${mortal.host}/v1/sessions/${id}/pty`, control.key).opened();
    mortal.kill();
    await client.closed;
    await graceAndMore();
    expect((await read(id)).state).toBe("live");
  });
  await letLeaseLapse(id);
  await control.until(id, "paused");
  expect(pausesOf(id)).toBe(1);
});

describe("alone, since all clocks are moved:", () => {
  afterEach(async () => {
    watchNode();
    await control.destroyAll();
  });

  test("a client that is still there after the host has slept has not left", async () => {
    const id = await control.createLive({ on_pty_detach: "destroy" });
    const client = await openPty(control, id);
    await control.sql.query("update sessions set due_at = null where id = $1", [id]);
    const leaseOf = async () =>
      (await control.sql.query("select lease_until from attachments where session_id = $1", [id])).rows[0];
    const first = await leaseOf();
    // Renewed a moment ago, so no renewal is due; and the attach itself is not in flight any more.
    await eventually(async () => {
      const { rowCount } = await control.sql.query(
        "select from sessions where id = $1 and busy_until > now()",
        [id],
      );
      expect(rowCount).toBe(0);
      expect(await leaseOf()).not.toEqual(first);
    });
    await control.sql.query(
      "update attachments set lease_until = now() - interval '1 hour' where session_id = $1",
      [id],
    );
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 3_600_000 });
    try {
      await control.sql.query("update sessions set due_at = now() where id = $1", [id]);
      await graceAndMore();
    } finally {
      vi.useRealTimers();
    }
    expect((await read(id)).state).toBe("live");
    await leave(client);
  });

  const operationOf = async (id: string) =>
    (await control.sql.query("select op from sessions where id = $1", [id])).rows[0].op;

  test("a pause that the disk refuses is tried again", async () => {
    const id = await control.createLive();
    let refused = 0;
    control.node.onSnapshot = () => {
      refused++;
      throw new Refusal("disk_pressure");
    };
    await leave(await openPty(control, id));
    await eventually(() => expect(refused).toBe(1));
    // The time of the next attempt is decided only then.
    await eventually(async () => expect(await operationOf(id)).toBeNull());
    watchNode();
    await clock.advance(15_000);
    await control.until(id, "paused");
  });

  describe("an attached client", () => {
    test.each(["pty", "tunnel"])(
      "of a %s keeps its session from being idle, also without traffic",
      async (kind) => {
        const id = await control.createLive({ idle_timeout_ms: 60_000, on_pty_detach: "keep_live" });
        const client = kind === "pty" ? await openPty(control, id) : await openTunnel(id);
        for (let n = 0; n < 5; n++) {
          await clock.advance(60_000);
          await new Promise((resolve) => setTimeout(resolve, 150));
          expect((await read(id)).state).toBe("live");
        }
        await leave(client);
      },
    );

    test("does not delay the end of the lifetime", async () => {
      const id = await control.createLive({ max_lifetime_ms: 3_600_000, on_pty_detach: "destroy" });
      const client = await openPty(control, id);
      await clock.advance(3_600_000);
      await control.until(id, "lifetime_expired");
      expect(await client.closed).toBe(1001);
      await graceAndMore();
      expect((await read(id)).state).toBe("lifetime_expired");
    });
  });

  describe("with another process on the same database", () => {
    let other: App;
    beforeAll(async () => {
      other = await createApp(control.settings, silentLog);
      other.startSweeps();
    });
    afterAll(() => other.close());

    test("clients of either count", async () => {
      const address = await other.server.listen({ host: "127.0.0.1", port: 0 });
      const id = await control.createLive({ idle_timeout_ms: 60_000 });
      const here = await openPty(control, id);
      const there = await new Client(
        `${address.replace("http", "ws")}/v1/sessions/${id}/pty`,
        control.key,
      ).opened();
      await leave(here);
      await clock.advance(300_000);
      await graceAndMore();
      expect((await read(id)).state).toBe("live");
      await leave(there);
      await control.until(id, "paused");
      expect(pausesOf(id)).toBe(1);
    });
  });
});
