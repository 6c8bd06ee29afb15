import { expect, it } from "vitest";
import { WakeRequests } from "./wake-requests.ts";

const never = new AbortController().signal;

it("makes one request of concurrent calls for one session and gives all of them its outcome", async () => {
  const wakes = new WakeRequests();
  const callers = [wakes.ask("s1"), wakes.ask("s1"), wakes.ask("s2")];
  const taken = await wakes.take(never);
  expect(taken.map(({ session_id }) => session_id)).toEqual(["s1", "s2"]);
  for (const { wake_id } of taken) wakes.answer(wake_id, { result: "live" });
  expect(await Promise.all(callers)).toEqual([{ result: "live" }, { result: "live" }, { result: "live" }]);
  expect(() => wakes.answer(taken[0]?.wake_id as string, { result: "live" })).toThrow("nobody waits");
});

it("sends a request to a control that waits, once", async () => {
  const wakes = new WakeRequests();
  const waiting = wakes.take(never);
  void wakes.ask("s1");
  expect(await waiting).toMatchObject([{ session_id: "s1" }]);
  expect(await wakes.take(never, 50)).toEqual([]);
});

it("ends every wait of control when the node stops", async () => {
  const wakes = new WakeRequests();
  const waiting = wakes.take(never);
  wakes.close();
  expect(await waiting).toEqual([]);
});

it("refuses a request that control does not answer, with Retry-After", async () => {
  const wakes = new WakeRequests();
  expect(await wakes.ask("s1", 20)).toMatchObject({ result: "refused", status: 503 });
  expect(await wakes.take(never, 20)).toEqual([]);
});

it("ends the wait of a control that disconnected, and keeps the request for the next", async () => {
  const wakes = new WakeRequests();
  const gone = new AbortController();
  const waiting = wakes.take(gone.signal);
  gone.abort();
  expect(await waiting).toEqual([]);
  void wakes.ask("s1");
  expect(await wakes.take(never)).toHaveLength(1);
});
