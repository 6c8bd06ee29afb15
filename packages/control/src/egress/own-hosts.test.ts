import { expect, test } from "vitest";
import { readConfig } from "../config.ts";
import { normalPolicy } from "./entry.ts";
import { ownHostsOf } from "./own-hosts.ts";

const configWith = (ranges: string) =>
  readConfig({ DATABASE_URL: "postgresql://localhost/none", VIV_NEVER_RANGES: ranges });

test("no policy may list a range that the operator closes, and the refusal is worded like the others", () => {
  const own = ownHostsOf(configWith("8.8.4.4, 9.9.9.0/24"));
  const allow = (entry: string) => () => normalPolicy({ mode: "deny", allow: [entry] }, own, "egress.allow");
  expect(allow("9.9.8.1")()).toEqual({ mode: "deny", allow: ["9.9.8.1"] });
  for (const [entry, range] of [
    ["9.9.9.1", "9.9.9.0/24"],
    ["8.8.4.4:53", "8.8.4.4/32"],
  ] as const)
    expect(allow(entry)).toThrow(
      expect.objectContaining({
        code: "validation",
        message: expect.stringContaining(`egress.allow[0]: lies in ${range}`),
      }),
    );
});

test("a policy may list what the operator opens, but nothing that is this host's or that the operator closes", () => {
  const read = (open: string, ranges = "") =>
    readConfig({
      DATABASE_URL: "postgresql://localhost/none",
      VIV_PRIVATE_OPEN: open,
      VIV_NEVER_RANGES: ranges,
    });
  const own = { ...ownHostsOf(read("10.1.2.3:443,10.2.0.0/24:8080")), addresses: ["10.2.0.1"] };
  const allow = (entry: string) => () => normalPolicy({ mode: "deny", allow: [entry] }, own, "egress.allow");
  expect(allow("10.1.2.3:443")()).toEqual({ mode: "deny", allow: ["10.1.2.3:443"] });
  expect(allow("10.1.2.3:22")).toThrow("did not open port 22");
  expect(allow("10.2.0.1:8080")).toThrow("is this service's own address");
  expect(() => read("10.1.2.3:443", "10.1.2.0/24")).toThrow("which has addresses of 10.1.2.0/24");
});

test("nothing is closed unless configured, and an ambiguous range stops the start", () => {
  expect(ownHostsOf(configWith("")).ranges).toEqual([]);
  expect(() => configWith("9.9.9.0/33")).toThrow('VIV_NEVER_RANGES names "9.9.9.0/33"');
});
