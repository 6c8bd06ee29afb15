import { expect, it } from "vitest";
import { flowEntry, parseFlowEvent } from "./flow-events.ts";

const NEW =
  "    [NEW] tcp      6 120 SYN_SENT src=10.220.0.3 dst=198.51.100.1 sport=40022 dport=8080 [UNREPLIED] src=198.51.100.1 dst=203.0.113.1 sport=8080 dport=40022 id=3159549543";
const END =
  "[DESTROY] tcp      6 src=10.220.0.3 dst=198.51.100.1 sport=40022 dport=8080 packets=5 bytes=300 src=198.51.100.1 dst=203.0.113.1 sport=8080 dport=40022 packets=4 bytes=4000 [ASSURED] id=3159549543 [USERSPACE] portid=2971092820";
const PING =
  "[DESTROY] icmp     1 src=10.220.0.3 dst=198.51.100.1 type=8 code=0 id=4660 packets=1 bytes=28 src=198.51.100.1 dst=203.0.113.1 type=0 code=0 id=4660 packets=1 bytes=28 id=77";

it("reads the beginning and end of a flow, with the bytes of both directions", () => {
  expect(parseFlowEvent(NEW)).toMatchObject({ event: "new", id: "3159549543", bytesOut: 0, bytesIn: 0 });
  expect(parseFlowEvent(END)).toEqual({
    event: "destroy",
    id: "3159549543",
    protocol: "tcp",
    source: "10.220.0.3",
    address: "198.51.100.1",
    port: 8080,
    bytesOut: 300,
    bytesIn: 4000,
  });
});

it("identifies a ping by its entry in the table, not by the number in its packet", () => {
  expect(parseFlowEvent(PING)).toMatchObject({ id: "77", protocol: "icmp", port: undefined, bytesOut: 28 });
});

it("skips lines that it does not know", () => {
  for (const line of [
    "",
    "[NEW] sctp 132 src=1.1.1.1",
    "[UPDATE] tcp 6 src=a dst=b id=1",
    "[NEW] tcp 6 nonsense",
  ]) {
    expect(parseFlowEvent(line)).toBeUndefined();
  }
});

it("names the rule that let a flow out", () => {
  const flow = parseFlowEvent(END);
  if (!flow) throw new Error("the line is a flow");
  const began = { machineId: "m", at: "2026-01-01T00:00:00.000Z", host: undefined, mode: "deny" as const };
  expect(flowEntry(flow, began)).toMatchObject({ reason: "address_allowed", bytes_out: 300, bytes_in: 4000 });
  expect(flowEntry(flow, { ...began, host: "a.example" })).toMatchObject({
    reason: "name_allowed",
    host: "a.example",
  });
  expect(flowEntry(flow, { ...began, mode: "allow" })).toMatchObject({ reason: "mode_allow" });
});
