import { MIB } from "@vivarium/kit/sizes";
import { describe, expect, it, vi } from "vitest";
import { excess, freeMemory, readyOrLoaded } from "./admission.ts";
import { WarmStock } from "./warm-stock.ts";

const NONE = { giveUpOne: async () => false };

const lack = (starting: number, free?: number) =>
  freeMemory(() => starting, NONE, free === undefined ? undefined : () => free);

it("as many machines run as the operator allows, and no more", () => {
  expect(excess(1, 1)).toBeUndefined();
  expect(excess(2, 1)).toMatch(/maximum of 1/);
});

it("starts a machine while 512 MiB stay free besides the memory of all machines that are starting", async () => {
  expect(await lack(1, 640 * MIB)).toBeUndefined();
  expect(await lack(1, 640 * MIB - 1)).toMatch(/memory/);
  expect(await lack(10, 1_792 * MIB)).toBeUndefined();
  expect(await lack(11, 1_792 * MIB)).toMatch(/memory/);
});

it("reads the free memory of this host", async () => {
  expect(await lack(1_000_000)).toMatch(/memory/);
});

describe("warm machines of 256 MiB each", () => {
  const EACH = 256 * MIB;

  /** A host whose free memory is what its warm machines leave. All of them together leave none. */
  function hostWith(names: string[]) {
    const there = new Set(names);
    const ended: string[] = [];
    const stock = new WarmStock<string>(async (name) => {
      await new Promise(setImmediate);
      there.delete(name);
      ended.push(name);
    });
    for (const name of names) stock.want(name.replace(/\d/, "")).ready.push(name);
    for (const [at, shelf] of [...stock.shelves.values()].entries()) shelf.wantedAt = at;
    const free = () => (names.length - there.size) * EACH;
    const start = (starting = 1) => freeMemory(() => starting, stock, free);
    return { stock, there, ended, start };
  }

  it("are ended for a start that lacks memory, the least wanted first, and no more than the start needs", async () => {
    const { ended, there, start } = hostWith(["old1", "hot1", "hot2", "hot3"]);
    expect(await start()).toBeUndefined();
    expect(ended[0]).toBe("old1");
    expect(ended).toHaveLength(3);
    expect(there.size).toBe(1);
    expect(await start()).toBeUndefined();
    expect(ended).toHaveLength(3);
  });

  it("are all ended before a start is refused", async () => {
    const { ended, start } = hostWith(["a1", "b1"]);
    expect(await start()).toMatch(/memory/);
    expect(ended).toEqual(["a1", "b1"]);
  });

  it("are ended one by one for starts that ask at the same time", async () => {
    const { there, start } = hostWith(["a1", "a2", "a3", "a4", "a5", "a6"]);
    const answers = await Promise.all([start(4), start(4), start(4), start(4)]);
    expect(answers).toEqual([undefined, undefined, undefined, undefined]);
    expect(there.size).toBe(2);
  });

  it("are waited for while they are being checked, and ended then", async () => {
    const { stock, ended, start } = hostWith(["a1", "a2", "a3"]);
    const looked = Promise.withResolvers<boolean>();
    const shelf = stock.want("a");
    const looking = stock.borrow("a", "a1", () => looked.promise);
    const answer = start();
    await expect.poll(() => ended).toHaveLength(2);
    looked.resolve(true);
    expect(await answer).toBeUndefined();
    expect(ended).toHaveLength(3);
    await looking;
    expect(shelf.ready).toEqual([]);
  });

  it("are taken by a start however short memory is, and none is ended for that start", async () => {
    const { stock, ended, start } = hostWith(["other1", "wanted1"]);
    const load = vi.fn();
    const ready = async () => stock.want("wanted").ready.shift();
    expect(await readyOrLoaded({ ready, lack: start, load })).toBe("wanted1");
    expect([ended, load.mock.calls]).toEqual([[], []]);
  });

  it("are ended for a machine that has to be loaded; if that is not enough, the start is refused and loads nothing", async () => {
    const { ended, start } = hostWith(["other1", "other2", "other3"]);
    const ready = async () => undefined;
    const load = vi.fn(async () => "loaded");
    expect(await readyOrLoaded({ ready, lack: start, load })).toBe("loaded");
    expect(ended).toHaveLength(3);
    const full = readyOrLoaded({ ready, lack: () => start(3), load });
    await expect(full).rejects.toMatchObject({
      code: "no_capacity",
      message: expect.stringMatching(/memory/),
    });
    expect(load).toHaveBeenCalledTimes(1);
  });
});
