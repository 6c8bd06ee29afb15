import { describe, expect, test } from "vitest";
import { compileRanges } from "./address-ranges.ts";
import { compileRules, judge, portsFor } from "./rules.ts";

const deny = (...allow: string[]) => compileRules({ mode: "deny", allow });
const isAllowed = (rules: ReturnType<typeof deny>, host: string, port = 443) =>
  judge(rules, host, port).isAllowed;

describe("an exact entry", () => {
  const rules = deny("example.com");

  test("opens its name on 80 and 443 and nothing else", () => {
    expect(judge(rules, "example.com", 443)).toEqual({ isAllowed: true, reason: "name_allowed" });
    expect(isAllowed(rules, "example.com", 80)).toBe(true);
    expect(judge(rules, "example.com", 8443)).toEqual({ isAllowed: false, reason: "port_not_allowed" });
  });

  test.each(["www.example.com", "example.com.evil.tld", "notexample.com", "example.co", "com"])(
    "does not open %s",
    (name) => {
      expect(judge(rules, name, 443)).toEqual({ isAllowed: false, reason: "name_not_allowed" });
    },
  );
});

describe("a wildcard", () => {
  const rules = deny("*.example.com");

  test.each(["a.example.com", "a.b.example.com"])("opens %s", (name) => {
    expect(isAllowed(rules, name)).toBe(true);
  });

  test.each(["example.com", "evil-example.com", "example.com.evil.tld", "xexample.com"])(
    "does not open %s",
    (name) => {
      expect(isAllowed(rules, name)).toBe(false);
    },
  );
});

test("an entry with a port opens that port alone, beside what other entries open", () => {
  const rules = deny("db.example.com:5432", "api.example.com:443", "*.example.com:8080");
  expect([...portsFor(rules, "db.example.com")].sort()).toEqual([5432, 8080]);
  expect(isAllowed(rules, "db.example.com", 443)).toBe(false);
  expect(isAllowed(rules, "api.example.com", 443)).toBe(true);
  expect(isAllowed(rules, "api.example.com", 80)).toBe(false);
});

test("an address opens itself, with a port only that; other addresses have no name", () => {
  const rules = deny("8.8.4.4", "9.9.9.9:80");
  expect(judge(rules, "8.8.4.4", 80)).toEqual({ isAllowed: true, reason: "address_allowed" });
  expect(judge(rules, "9.9.9.9", 80)).toEqual({ isAllowed: true, reason: "address_allowed" });
  expect(judge(rules, "9.9.9.9", 443)).toEqual({ isAllowed: false, reason: "port_not_allowed" });
  expect(judge(rules, "1.1.1.1", 80)).toEqual({ isAllowed: false, reason: "no_name" });
});

test("nothing is open without entries, everything in mode allow", () => {
  expect(isAllowed(deny(), "example.com")).toBe(false);
  expect(judge(compileRules({ mode: "allow", allow: [] }), "example.com", 443)).toEqual({
    isAllowed: true,
    reason: "mode_allow",
  });
});

describe("an entry of a wrong form opens nothing", () => {
  const odd = [
    ...[
      "0x7f.1",
      "127.1",
      "0177.0.0.1",
      "2130706433",
      "::ffff:10.0.0.1",
      "[::1]",
      "10.0.0.0/8",
      "*",
      "*.com",
    ],
    ...[
      "http://x/",
      "",
      "a..b",
      "*.*.com",
      "exa mple.com",
      "example.com:0",
      "example.com:99999",
      "example.com:",
    ],
  ];

  test.each(odd)("%j", (entry) => {
    const rules = deny(entry);
    for (const host of ["127.0.0.1", "10.0.0.1", "10.1.2.3", "x", "a.com", "example.com", "a.b", entry]) {
      expect(isAllowed(rules, host, 80), host).toBe(false);
    }
    expect(isAllowed(deny(entry, "example.com"), "example.com")).toBe(true);
  });
});

describe("ranges that nothing dials", () => {
  const isNever = compileRanges(["10.0.0.0/8", "168.63.129.16/32"]);

  test.each(["10.0.0.1", "10.255.255.255", "168.63.129.16", "0.0.0.0", "255.255.255.255", "169.254.169.254"])(
    "%s is in them",
    (address) => expect(isNever(address)).toBe(true),
  );

  test.each(["11.0.0.1", "9.255.255.255", "168.63.129.17", "1.1.1.1"])("%s is not", (address) => {
    expect(isNever(address)).toBe(false);
  });

  test.each(["::1", "::ffff:1.1.1.1", "1.1", "example.com", ""])(
    "what is no IPv4 address counts as in them: %j",
    (text) => {
      expect(isNever(text)).toBe(true);
    },
  );

  test("nor is a TCP port that is open in them, and no other port or address opens with it", () => {
    const isClosed = compileRanges(
      ["10.0.0.0/8"],
      [
        { range: "10.1.2.3/32", port: 443 },
        { range: "169.254.0.0/16", port: 80 },
      ],
    );
    expect([isClosed("10.1.2.3", 443), isClosed("10.1.2.3")]).toEqual([false, false]);
    for (const [address, port] of [
      ["10.1.2.3", 80],
      ["10.1.2.4", 443],
      ["169.254.169.254", 80],
      ["::ffff:10.1.2.3", 443],
    ] as const)
      expect(isClosed(address, port), `${address}:${port}`).toBe(true);
  });

  test.each(["10.0.0.0/33", "10.0.0.0/x", "10.0.0/8", "fe80::/10", "10.0.0.0/8/8"])(
    "%s is no range",
    (range) => {
      expect(() => compileRanges([range])).toThrow(range);
    },
  );
});
