import { ConnectionEntry } from "@vivarium/contract/gateway";
import { expect, test } from "vitest";
import { ConnectionLog, type LoggedRequest } from "./connection-log.ts";
import { Credential } from "./credential.ts";

const entry = (change: Partial<LoggedRequest> = {}): LoggedRequest => ({
  machine_id: "mch_1",
  ...{ session_id: "ses_1", at: "2026-01-01T00:00:00.000Z", connection: "api", host: "api.example" },
  ...{ event: "used", method: "GET", path: "/", bytes_out: 0, bytes_in: 0 },
  ...change,
});

test("entries of a session that floods are bounded and counted, and cost another session none", () => {
  const log = new ConnectionLog();
  for (let at = 0; at < 5_000; at++) log.add(entry());
  log.add(entry({ event: "reflected" }));
  log.add(entry({ session_id: "ses_2" }));
  const first = log.take();
  const second = log.take();
  expect(first?.lost).toBe(4_000);
  expect([...(first?.entries ?? []), ...(second?.entries ?? [])]).toHaveLength(1_002);
  expect(second?.entries.map(({ event }) => event)).toEqual(["reflected", "used"]);
  expect(() => second?.entries.map((one) => ConnectionEntry.parse(one))).not.toThrow();
  expect(log.take()).toBeUndefined();
  log.add(entry());
  expect(log.take()?.entries).toHaveLength(1);
});

test("a credential that is forgotten has no value, and is found nowhere", () => {
  const credential = new Credential({ name: "X-Key", value: "secret-0123456789" });
  expect(credential.value()).toBe("secret-0123456789");
  expect(credential.isIn("a secret-0123456789 b")).toBe(true);
  credential.forget();
  expect(credential.value()).toBeUndefined();
  expect(credential.isIn("a secret-0123456789 b")).toBe(false);
});
