import type { Pin } from "@vivarium/contract/gateway";
import { expect, it } from "vitest";
import { Pins } from "./pins.ts";

const [FIRST, SECOND] = ["198.51.100.1", "198.51.100.2"];
const all = () => true;

function pin(host: string, rest: Partial<Pin> = {}): Pin {
  return { machine_id: "m", generation: 1, host, ports: [5432], addresses: [FIRST], ttl_s: 30, ...rest };
}

it("returns each address and port once, with the longest time of a name", () => {
  const pins = new Pins();
  expect(pins.add([pin("a.example", { ttl_s: 300 }), pin("b.example")], 0)).toEqual([
    { address: FIRST, port: 5432, ttlS: 300 },
  ]);
  expect(pins.add([pin("b.example", { ports: [5432, 6000] })], 100_000)).toEqual([
    { address: FIRST, port: 5432, ttlS: 200 },
    { address: FIRST, port: 6000, ttlS: 30 },
  ]);
});

it("keeps an address while one of its names is allowed, and names the last one pinned", () => {
  const pins = new Pins();
  pins.add([pin("a.example", { addresses: [FIRST, SECOND] }), pin("B.example")], 0);
  expect(pins.nameOf(FIRST, 5432)).toBe("b.example");
  expect(pins.keep((host) => host === "a.example", 0).learned).toHaveLength(2);
  expect(pins.nameOf(FIRST, 5432)).toBe("a.example");
  expect(pins.keep((host) => host === "b.example", 0)).toEqual({ learned: [], lasting: [] });
  expect(pins.nameOf(FIRST, 5432)).toBeUndefined();
});

it("opens nothing new after it expires, and leaves open flows alone", () => {
  const pins = new Pins();
  pins.add([pin("a.example")], 0);
  expect(pins.keep(all, 31_000)).toEqual({ learned: [], lasting: [{ address: FIRST, port: 5432 }] });
});

it("admits as many as the kernel's set holds, and forgets expired pins when there are more", () => {
  const pins = new Pins();
  const ports = Array.from({ length: 256 }, (_, index) => index + 1);
  const of = (block: number) => pin("a.example", { ports, addresses: [`198.51.100.${block}`] });
  for (let block = 0; block < 16; block++) {
    expect(pins.admits([of(block)], 0)).toBe(true);
    pins.add([of(block)], 0);
  }
  expect(pins.admits([pin("b.example")], 0)).toBe(false);
  expect(pins.admits([pin("b.example")], 30_000)).toBe(true);
  pins.add([pin("b.example", { addresses: [SECOND], ports: [9] })], 30_000);
  expect(pins.keep(all, 30_000).lasting).toEqual([{ address: SECOND, port: 9 }]);
});
