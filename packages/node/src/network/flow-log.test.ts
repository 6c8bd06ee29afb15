import { expect, it } from "vitest";
import { slotOf } from "../host/slots.ts";
import { EgressLog } from "./egress-log.ts";
import { LineBudget, onLine } from "./flow-log.ts";
import { kernelPolicyOf, OPEN_NETWORK } from "./kernel-policy.ts";
import type { Networks } from "./networks.ts";
import { SlotNetwork } from "./slot-network.ts";

const flooded = networkOf(1);
const quiet = networkOf(2);

function networkOf(number: number): SlotNetwork {
  const network = new SlotNetwork({ slot: slotOf(number), mark: 1, policy: kernelPolicyOf(OPEN_NETWORK) });
  network.machine = { machineId: `m${number}-1`, spec: OPEN_NETWORK, version: 1, isApplied: true };
  return network;
}

const ended = ({ slot }: SlotNetwork, id: number) =>
  `[DESTROY] tcp 6 src=${slot.machineAddress} dst=198.51.100.1 sport=4 dport=80 packets=5 bytes=300 src=198.51.100.1 dst=203.0.113.1 sport=80 dport=4 packets=4 bytes=400 id=${id}`;

it("a machine with thousands of flows that end costs no other machine a line, and lines left out are counted", () => {
  const log = new EgressLog();
  const networks = { all: () => [flooded, quiet] } as Networks;
  const deps = { networks, log, open: new Map(), budget: new LineBudget() };
  for (let id = 0; id < 2_000; id++) onLine(deps, ended(flooded, id));
  for (let id = 2_000; id < 2_050; id++) onLine(deps, ended(quiet, id));
  const { entries, lost } = log.pageAfter(undefined);
  const of = (id: string) => entries.filter(({ machine_id }) => machine_id === id).length;
  expect(of("m2-1")).toBe(50);
  // Twice as many if a second ends in between.
  expect(of("m1-1")).toBeGreaterThanOrEqual(200);
  expect(of("m1-1")).toBeLessThanOrEqual(400);
  expect(lost).toBe(2_000 - of("m1-1"));
});

it("allows as many lines in the next second", () => {
  const budget = new LineBudget();
  const taken = (now: number) =>
    Array.from({ length: 300 }, () => budget.takes("m", now)).filter(Boolean).length;
  expect([taken(0), taken(999), taken(1_000)]).toEqual([200, 0, 200]);
});
