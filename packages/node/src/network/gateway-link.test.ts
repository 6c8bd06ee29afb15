import { expect, it } from "vitest";
import { GatewayLink } from "./gateway-link.ts";
import type { GatewayConnection } from "./gateway-stream.ts";

const newLink = (expectGatewayMs = 0) =>
  new GatewayLink({
    compose: (version) => ({ version, slots: [], routes: [], never: [], resolvers: ["192.0.2.53"] }),
    expectGatewayMs,
  });

class Connection implements GatewayConnection {
  sent: number[] = [];
  isClosed = false;
  takesMore = true;
  send = (line: string) => {
    this.sent.push(JSON.parse(line).version);
    return this.takesMore;
  };
  close = () => {
    this.isClosed = true;
  };
}

const nextTick = () => new Promise((resolve) => setImmediate(resolve));

it("sends the newest tables at once, and once for many changes", async () => {
  const link = newLink();
  link.publish();
  const connection = new Connection();
  link.stream.connect(connection);
  expect(connection.sent).toEqual([2]);
  link.publish();
  link.publish();
  await nextTick();
  expect(connection.sent).toEqual([2, 4]);
});

it("waits for a connection that is full, and then sends only the newest tables", async () => {
  const link = newLink();
  const connection = new Connection();
  connection.takesMore = false;
  link.stream.connect(connection);
  for (let i = 0; i < 3; i++) {
    link.publish();
    await nextTick();
  }
  expect(connection.sent).toEqual([1]);
  connection.takesMore = true;
  link.stream.ready(connection);
  expect(connection.sent).toEqual([1, 4]);
});

it("closes the older connection, and no longer counts its confirmations", async () => {
  const link = newLink();
  const [older, newer] = [new Connection(), new Connection()];
  link.stream.connect(older);
  link.stream.applied(1);
  expect(await link.confirmed(1, 50)).toBe(true);
  link.stream.connect(newer);
  expect(older.isClosed).toBe(true);
  link.stream.disconnect(older);
  expect(link.isConnected).toBe(true);
  expect(await link.confirmed(1, 50)).toBe(false);
  link.stream.applied(1);
  expect(await link.confirmed(1, 50)).toBe(true);
});

it("ignores a confirmation of tables that were not sent, and takes a later one for an earlier version", async () => {
  const link = newLink();
  link.stream.connect(new Connection());
  const version = link.publish();
  link.stream.applied(99);
  expect(await link.confirmed(version, 50)).toBe(false);
  const later = link.publish();
  await nextTick();
  link.stream.applied(later);
  expect(await link.confirmed(version, 50)).toBe(true);
});

it("counts a version as outdated at once without a gateway, but waits for a gateway that may still connect", async () => {
  await newLink().outdated(1);
  const link = newLink(60_000);
  let isOutdated = false;
  const outdated = link.outdated(1).then(() => {
    isOutdated = true;
  });
  await nextTick();
  expect(isOutdated).toBe(false);
  link.stream.connect(new Connection());
  await nextTick();
  expect(isOutdated).toBe(false);
  link.stream.applied(1);
  await outdated;
});
