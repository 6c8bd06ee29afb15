/** Effects of a service on this host's forwarding, from its start to its end; each test in a network of its own. */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));
/** Slots and services of the host are not those of the test. */
const ALONE = [
  at("../scripts/in-own-network"),
  ...["sh", "-ec", 'mkdir -p /run/vivarium; mount -t tmpfs tmpfs /run/vivarium; eval "$1"', "sh"],
];
const STEPS = `${process.execPath} --no-warnings ${at("./support/forwarding-steps.ts")}`;

/** The setting of forwarding after each step; each list of steps is a process. */
function forwardingAfter(...processes: string[]): string {
  const script = processes.map((steps) => `${STEPS} ${steps} || [ $? = 137 ]`).join("\n");
  const [program = "", ...args] = [...ALONE, script];
  return execFileSync(program, args, { encoding: "utf8", stdio: "pipe" });
}

test("forwarding is switched on with a node, and off with the last service, as it was before", () => {
  expect(forwardingAfter("set:0 a:start a:stop")).toBe("010");
  expect(forwardingAfter("set:0 a:start b:start a:stop b:stop")).toBe("01110");
});

test("on a host that forwarded before, it stays on", () => {
  expect(forwardingAfter("set:1 a:start a:stop")).toBe("111");
});

test("the old setting is known after services that were killed: the first one's start counts", () => {
  expect(forwardingAfter("set:0 a:start die", "a:start die", "a:start a:stop")).toBe("01110");
});

test("an uninstall puts it back, also after services that were killed", () => {
  expect(forwardingAfter("set:0 a:start die", "uninstall")).toBe("010");
  expect(forwardingAfter("set:1 a:start die", "uninstall")).toBe("111");
});

test("bytes of flows are counted while services run alone, also where a firewall has removed the record of that", () => {
  const counts = (...steps: string[]) => / (\d) \d*$/.exec(` ${forwardingAfter(...steps)}`)?.[1];
  expect(counts("set:1 a:start count counts a:stop")).toBe("1");
  expect(counts("set:1 a:start count a:stop counts")).toBe("0");
  expect(counts("set:1 a:start count die", "uninstall counts")).toBe("0");
  expect(counts("set:1 a:start count a:keep flush wait:1 a:stop counts")).toBe("0");
});

test("it stays as somebody else has set it since", () => {
  expect(forwardingAfter("set:0 a:start set:2 a:stop")).toBe("0122");
  // Off while a service ran, then on for good: the note about its old value went with that service.
  expect(forwardingAfter("set:0 a:start set:0 a:stop", "set:1 a:start a:stop")).toBe("0100111");
});

test("it stays on while machines of a service that stopped run on", () => {
  const script = "mkdir -p /run/vivarium/slots; touch /run/vivarium/slots/7";
  const [program = "", ...args] = [
    ...ALONE,
    `${script}; ${STEPS} set:0 a:start a:stop; rm /run/vivarium/slots/7; ${STEPS} a:start a:stop`,
  ];
  expect(execFileSync(program, args, { encoding: "utf8" })).toBe("01110");
});

test("a node puts rules and forwarding back that another program takes away, and the old setting is still known", () => {
  expect(forwardingAfter("set:0 a:start a:keep flush wait:1 a:stop")).toBe("011110");
  expect(forwardingAfter("set:0 a:start a:keep other wait:1 a:stop")).toBe("011110");
  expect(forwardingAfter("set:1 a:start a:keep flush wait:1 set:0 wait:1 a:stop")).toBe("11111010");
});
