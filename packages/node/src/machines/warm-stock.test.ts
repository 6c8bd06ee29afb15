import { expect, it } from "vitest";
import { NO_DEMAND } from "./demand.ts";
import { WarmStock } from "./warm-stock.ts";

const SECOND = 1_000;

function stockOf() {
  const ended: string[] = [];
  const stock = new WarmStock<string>(async (name) => void ended.push(name));
  return { stock, ended };
}

it("requests at the same time count once", () => {
  const { stock } = stockOf();
  const wants = [0, 0, 1, SECOND, 2 * SECOND, 3 * SECOND + 1, 3 * SECOND + 2];
  expect(wants.map((now) => stock.want("a", now).times)).toEqual([1, 1, 1, 1, 1, 2, 2]);
  expect(stock.want("b", 5 * SECOND).times).toBe(1);
});

it("each request counts as demand; a source kept without a request has none", () => {
  const { stock } = stockOf();
  for (let i = 0; i < 16; i++) stock.want("a", SECOND);
  stock.keep("a", 2 * SECOND);
  expect(stock.keep("b", 2 * SECOND)).toMatchObject({ wantedAt: 2 * SECOND, times: 0, demand: NO_DEMAND });
  expect(stock.shelves.get("a")).toMatchObject({
    wantedAt: 2 * SECOND,
    times: 1,
    demand: { weight: 16, at: SECOND },
  });
});

it("dropping a source ends its machines, also those being made or checked", async () => {
  const { stock, ended } = stockOf();
  const shelf = stock.want("a");
  await stock.put("a", shelf, "waiting");
  await stock.put("a", shelf, "away");
  const { promise: looked, resolve } = Promise.withResolvers<boolean>();
  const looking = stock.borrow("a", "away", () => looked);
  await stock.drop("a");
  expect(ended).toEqual(["waiting"]);
  await stock.put("a", shelf, "late");
  resolve(true);
  await looking;
  expect(ended).toEqual(["waiting", "late", "away"]);
  expect(stock.want("a").ready).toEqual([]);
});

it("a source that is wanted again after a drop gets no machine from before", async () => {
  const { stock, ended } = stockOf();
  const before = stock.want("a");
  await stock.drop("a");
  const after = stock.want("a");
  await stock.put("a", before, "old");
  await stock.put("a", after, "new");
  expect([after.ready, ended]).toEqual([["new"], ["old"]]);
});

it("the machine with the least demand is given up first, however lately it was kept; of equals, the one wanted longest ago", async () => {
  const { stock, ended } = stockOf();
  const now = Date.now();
  for (let i = 0; i < 5; i++) stock.want("often", now - 10 * SECOND + i);
  stock.want("once", now - SECOND);
  stock.keep("kept before", now - 2 * SECOND);
  stock.keep("kept now", now);
  for (const [key, shelf] of stock.shelves) await stock.put(key, shelf, key);
  while (await stock.giveUpOne());
  expect(ended).toEqual(["kept before", "kept now", "once", "often"]);
});
