import type { ConnectionLine, SessionConnections } from "@vivarium/contract/gateway";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Connections } from "./connections.ts";
import type { GatewayConnection } from "./gateway-stream.ts";

let here: Set<string>;
let connections: Connections;

beforeEach(() => {
  vi.useFakeTimers();
  here = new Set();
  connections = new Connections(() => here);
});
afterEach(() => vi.useRealTimers());

const of = (session_id: string, version: number): SessionConnections => ({
  ...{ session_id, version, ca: { certificate_pem: "certificate", key_pem: "key" } },
  ...{ connections: [], tombstones: [] },
});

/** Takes lines, and confirms them if `confirms` is set. */
class Gateway implements GatewayConnection {
  lines: ConnectionLine[] = [];
  confirms = true;
  takesMore = true;
  isClosed = false;
  send = (line: string) => {
    const sent = JSON.parse(line) as ConnectionLine;
    this.lines.push(sent);
    if (this.confirms && sent.type !== "lease") queueMicrotask(() => connections.stream.applied(sent.seq));
    return this.takesMore;
  };
  close = () => {
    this.isClosed = true;
  };

  /** The lines since the last call: `a@1` for Connections, `only a b`, `lease 0`. */
  take(): string[] {
    return this.lines.splice(0).map((line) => {
      if (line.type === "session") return `${line.session.session_id}@${line.session.version}`;
      return line.type === "only" ? ["only", ...line.session_ids].join(" ") : `lease ${line.age_ms}`;
    });
  }
}

function connect(gateway = new Gateway()): Gateway {
  connections.stream.connect(gateway);
  return gateway;
}

function start(sessionId: string): void {
  here.add(sessionId);
  connections.machinesChanged();
}

function end(sessionId: string): void {
  here.delete(sessionId);
  connections.machinesChanged();
}

const renew = (versions: Record<string, number>) =>
  connections.renew({
    sessions: Object.entries(versions).map(([session_id, version]) => ({ session_id, version })),
  });

/** Whether the call has an answer by now. */
async function isAnswered(call: Promise<unknown>): Promise<boolean> {
  let isOver = false;
  call.then(
    () => {
      isOver = true;
    },
    () => {
      isOver = true;
    },
  );
  await vi.advanceTimersByTimeAsync(0);
  return isOver;
}

describe("a session's Connections", () => {
  it("reach the gateway while the session has a machine here, each version once, with rising numbers", async () => {
    const gateway = connect();
    await connections.put(of("a", 1));
    expect(gateway.take()).toEqual([]);
    start("a");
    start("b");
    expect(await connections.put(of("a", 1))).toBe(1);
    expect(await connections.put(of("a", 3))).toBe(3);
    expect(gateway.lines.map((line) => line.type !== "lease" && line.seq)).toEqual([1, 2]);
    expect(gateway.take()).toEqual(["a@1", "a@3"]);
  });

  it("are replaced by newer ones alone", async () => {
    const gateway = connect();
    start("a");
    await connections.put(of("a", 3));
    expect(await connections.put(of("a", 2))).toBe(3);
    expect(gateway.take()).toEqual(["a@3"]);
  });

  it("are put once the gateway confirmed them, not before; a confirmation of an earlier line does not count", async () => {
    const gateway = connect();
    gateway.confirms = false;
    start("a");
    start("b");
    const [first, second] = [connections.put(of("a", 1)), connections.put(of("b", 1))];
    connections.stream.applied(1);
    expect([await isAnswered(first), await isAnswered(second)]).toEqual([true, false]);
    connections.stream.applied(9);
    expect(await isAnswered(second)).toBe(true);
  });

  it("are put at once for a session without a machine here", async () => {
    expect(await connections.put(of("a", 1))).toBe(1);
  });

  it("wait for a gateway that has not connected yet, which may hold an older credential", async () => {
    start("a");
    const put = connections.put(of("a", 1));
    expect(await isAnswered(put)).toBe(false);
    const gateway = connect();
    expect(await put).toBe(1);
    expect(gateway.take()).toEqual(["a@1"]);
  });

  it("that the gateway does not confirm in time are refused as unconfirmed, kept, and sent to the next gateway", async () => {
    const silent = connect();
    silent.confirms = false;
    start("a");
    const put = connections.put(of("a", 1));
    const refused = expect(put).rejects.toMatchObject({ code: "network_unconfirmed" });
    await vi.advanceTimersByTimeAsync(5_000);
    await refused;
    const gateway = connect();
    expect(silent.isClosed).toBe(true);
    expect(gateway.take()).toEqual(["a@1"]);
    expect(await connections.put(of("a", 1))).toBe(1);
  });

  it("are in force only when the newest gateway confirms the line that it was sent", async () => {
    connect().confirms = false;
    start("a");
    start("b");
    const put = [connections.put(of("a", 1)), connections.put(of("b", 1))] as const;
    const later = new Gateway();
    later.confirms = false;
    connect(later);
    const numbers = later.lines.map((line) => (line.type === "lease" ? 0 : line.seq));
    expect(numbers).toEqual([3, 4]);
    connections.stream.applied(3);
    expect([await isAnswered(put[0]), await isAnswered(put[1])]).toEqual([true, false]);
  });

  it("are known to the gateway before a start returns", async () => {
    await connections.put(of("a", 1));
    const gateway = connect();
    gateway.confirms = false;
    start("a");
    const known = connections.confirmed("a", 1_000 * SLOWNESS);
    expect(await isAnswered(known)).toBe(false);
    connections.stream.applied(1);
    expect(await known).toBe(true);
    expect(await connections.confirmed("without", 1_000)).toBe(true);
  });

  it("wait for a gateway that is full, and are sent in their newest version", async () => {
    start("a");
    start("b");
    const gateway = new Gateway();
    gateway.takesMore = false;
    connect(gateway);
    for (const version of [1, 2, 3]) void connections.put(of("a", version));
    void connections.put(of("b", 1));
    expect(gateway.take()).toEqual(["a@1"]);
    gateway.takesMore = true;
    connections.stream.ready(gateway);
    expect(gateway.take()).toEqual(["a@3", "b@1"]);
  });
});

describe("a lease", () => {
  it("is answered with the sessions of which the node has another version", async () => {
    await connections.put(of("a", 2));
    await connections.put(of("b", 2));
    expect(renew({ a: 2, b: 3, c: 1 })).toEqual(["b", "c"]);
    await connections.put(of("b", 3));
    expect(renew({ a: 2, b: 3 })).toEqual([]);
    // Newer than the rows of a database that was restored from a backup.
    expect(renew({ a: 1, b: 3 })).toEqual(["a"]);
  });

  it("is sent when it comes and to a gateway that connects, with its age, behind all Connections", async () => {
    start("a");
    const gateway = connect();
    await connections.put(of("a", 1));
    renew({ a: 1 });
    expect(gateway.take()).toEqual(["a@1", "only a", "lease 0"]);
    vi.advanceTimersByTime(3_000);
    expect(connect().take()).toEqual(["a@1", "only a", "lease 3000"]);
    renew({ a: 1 });
    expect(gateway.take()).toEqual([]);
  });

  it("sends no list while it changes nothing", async () => {
    start("a");
    const gateway = connect();
    await connections.put(of("a", 1));
    renew({ a: 1 });
    gateway.take();
    renew({ a: 1, elsewhere: 4 });
    expect(gateway.take()).toEqual(["lease 0"]);
    start("b");
    expect(gateway.take()).toEqual([]);
  });

  it("that does not list a session makes node and gateway forget it", async () => {
    start("a");
    const gateway = connect();
    await connections.put(of("a", 1));
    renew({ a: 1 });
    gateway.take();
    vi.advanceTimersByTime(10_000);
    renew({});
    expect(gateway.take()).toEqual(["only", "lease 0"]);
    expect(renew({ a: 1 })).toEqual(["a"]);
  });
});

it("a lease that was composed before a session was sent, and comes after it, does not make the node forget it", async () => {
  await connections.put(of("a", 1));
  renew({});
  start("a");
  expect(connect().take()).toEqual(["a@1", "only a", "lease 0"]);
});

describe("a session that has ended", () => {
  it("is taken from the gateway while its machine runs on, and what arrives late does not bring it back", async () => {
    const gateway = connect();
    start("a");
    renew({ a: 1 });
    await connections.put(of("a", 1));
    gateway.take();
    await connections.withdraw("a");
    expect(gateway.take()).toEqual(["only"]);
    expect(await connections.put(of("a", 7))).toBe(7);
    renew({ a: 7 });
    expect(gateway.take()).toEqual(["lease 0"]);
  });

  it("is withdrawn only once the gateway confirms it", async () => {
    const gateway = connect();
    start("a");
    renew({ a: 1 });
    await connections.put(of("a", 1));
    gateway.confirms = false;
    const withdrawn = expect(connections.withdraw("a")).rejects.toThrow("did not confirm");
    await vi.advanceTimersByTimeAsync(5_000);
    await withdrawn;
    gateway.confirms = true;
    connect(gateway);
    await connections.withdraw("a");
  });

  it("has its Connections again when it has a new machine here", async () => {
    const gateway = connect();
    start("a");
    renew({});
    await connections.withdraw("a");
    end("a");
    start("a");
    gateway.take();
    await connections.put(of("a", 2));
    expect(gateway.take()).toContain("a@2");
  });
});

describe("a new process of the node", () => {
  it("has no lease before control's first one, nor once that is over", () => {
    expect(connections.isLeased).toBe(false);
    renew({});
    expect(connections.isLeased).toBe(true);
    vi.advanceTimersByTime(20_000);
    expect(connections.isLeased).toBe(false);
  });

  it.each([
    ["a gateway", true],
    ["no gateway yet", false],
  ])(
    "has no lease, with %s, while the lease waits for Connections that it lacks",
    async (_case, isConnected) => {
      start("a");
      if (isConnected) connect();
      renew({ a: 1 });
      expect(connections.isLeased).toBe(false);
      const put = connections.put(of("a", 1));
      expect(connections.isLeased).toBe(true);
      if (!isConnected) connect();
      await put;
      expect(connections.isLeased).toBe(true);
    },
  );

  it("has no lease for a gateway that has an earlier one, which is over", async () => {
    const gateway = connect();
    start("a");
    renew({});
    expect(gateway.take()).toEqual(["only", "lease 0"]);
    vi.advanceTimersByTime(19_000);
    renew({ a: 1 });
    expect(connections.isLeased).toBe(true);
    vi.advanceTimersByTime(1_000);
    expect(connections.isLeased).toBe(false);
    await connections.put(of("a", 1));
    expect(connections.isLeased).toBe(true);
  });

  it("sends no list before its first lease, so that the gateway keeps what it has", () => {
    start("a");
    const gateway = connect();
    end("a");
    expect(gateway.take()).toEqual([]);
  });

  it("leaves to the gateway the sessions that its first lease lists, and holds the lease until it has them", async () => {
    start("a");
    const gateway = connect();
    expect(renew({ a: 7, elsewhere: 1 })).toEqual(["a", "elsewhere"]);
    // The gateway may have an older version, whose credential was revoked meanwhile.
    expect(gateway.take()).toEqual(["only a"]);
    await connections.put(of("a", 7));
    expect(gateway.take()).toEqual(["a@7", "lease 0"]);
  });

  it("takes a session from the gateway whose version does not come by the second lease, and renews the lease of the others", async () => {
    start("a");
    start("b");
    const gateway = connect();
    renew({ a: 7, b: 1 });
    await connections.put(of("b", 1));
    expect(gateway.take()).toEqual(["only a b", "b@1"]);
    expect(renew({ a: 7, b: 1 })).toEqual(["a"]);
    expect(gateway.take()).toEqual(["only b", "lease 0"]);
    await connections.put(of("a", 7));
    expect(gateway.take()).toEqual(["a@7", "only a b"]);
  });
});

it("a version that control lists and does not send is taken from the gateway, though the node has an older one", async () => {
  start("a");
  const gateway = connect();
  await connections.put(of("a", 1));
  renew({ a: 1 });
  gateway.take();
  renew({ a: 2 });
  expect(gateway.take()).toEqual([]);
  // A version that grows between two leases is not overdue while each one comes.
  await connections.put(of("a", 2));
  expect(gateway.take()).toEqual(["a@2", "lease 0"]);
  renew({ a: 3 });
  expect(gateway.take()).toEqual([]);
  renew({ a: 3 });
  expect(gateway.take()).toEqual(["only", "lease 0"]);
  await connections.put(of("a", 3));
  expect(gateway.take()).toEqual(["a@3", "only a"]);
});

describe("a session whose last machine is gone", () => {
  it("is taken from the gateway at once, and sent again with its next machine", async () => {
    start("a");
    start("b");
    const gateway = connect();
    await connections.put(of("a", 1));
    renew({ a: 1 });
    gateway.take();
    end("a");
    expect(gateway.take()).toEqual(["only"]);
    start("a");
    expect(gateway.take()).toEqual(["a@1", "only a"]);
  });

  it("is forgotten by the node after 30 s without a lease, and kept as long as leases list it", async () => {
    start("a");
    await Promise.allSettled([connections.put(of("a", 1)), vi.advanceTimersByTimeAsync(5_000)]);
    end("a");
    for (let at = 0; at < 12; at++) {
      expect(renew({ a: 1 })).toEqual([]);
      vi.advanceTimersByTime(5_000);
    }
    vi.advanceTimersByTime(24_900);
    start("a");
    expect(connect().take()).toEqual(["a@1", "only a", "lease 29900"]);
    end("a");
    vi.advanceTimersByTime(30_000);
    start("a");
    expect(connect().take()).not.toContain("a@1");
  });
});

it("Connections of a session that never gets a machine are forgotten after 30 s", async () => {
  await connections.put(of("a", 1));
  vi.advanceTimersByTime(30_000);
  start("a");
  expect(connect().take()).toEqual([]);
});
