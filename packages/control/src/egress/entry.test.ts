import fc from "fast-check";
import { expect, test } from "vitest";
import { normalPolicy, type OwnHosts, parseEntry } from "./entry.ts";

const OWN: OwnHosts = {
  names: ["preview.example.net"],
  addresses: ["93.184.216.34"],
  ranges: ["9.9.9.0/24"],
  open: [
    { range: "10.1.2.3/32", port: 443 },
    { range: "10.2.0.0/24", port: 8080 },
  ],
};
const parse = (text: string) => parseEntry(text, OWN);

test.each([
  ["api.example.com", "api.example.com"],
  ["API.Example.COM", "api.example.com"],
  ["api.example.com.", "api.example.com"],
  ["api.example.com.:8443", "api.example.com:8443"],
  ["api.example.com:1", "api.example.com:1"],
  ["api.example.com:65535", "api.example.com:65535"],
  ["*.example.com", "*.example.com"],
  ["*.Example.com.:443", "*.example.com:443"],
  ["*.example.co.uk", "*.example.co.uk"],
  ["*.github.io", "*.github.io"],
  ["_dmarc.example.com", "_dmarc.example.com"],
  ["a_b.example.com", "a_b.example.com"],
  ["münchen.de", "xn--mnchen-3ya.de"],
  ["MÜNCHEN.de", "xn--mnchen-3ya.de"],
  ["straße.de", "xn--strae-oqa.de"],
  ["*.münchen.de:8443", "*.xn--mnchen-3ya.de:8443"],
  ["xn--mnchen-3ya.de", "xn--mnchen-3ya.de"],
  ["例え.jp", "xn--r8jz45g.jp"],
  ["example.net", "example.net"],
  ["*.other.example.net", "*.other.example.net"],
  ["co.uk", "co.uk"],
  ["1.example.com", "1.example.com"],
  ["127.0.0.1.example.com", "127.0.0.1.example.com"],
  [`${"a".repeat(63)}.example.com`, `${"a".repeat(63)}.example.com`],
  ["8.8.4.4", "8.8.4.4"],
  ["8.8.4.4:22", "8.8.4.4:22"],
  ["172.15.255.255", "172.15.255.255"],
  ["172.32.0.0", "172.32.0.0"],
  ["dns.google.com", "dns.google.com"],
])("%s is stored as %s", (text, entry) => {
  expect(parse(text)).toEqual({ entry });
});

const WIDE = /too wide/;
const NEVER = /never reachable/;
const NUMBER = /four decimal numbers/;
const SPACE = /spaces, control or invisible/;
const FORM = /must be host, host:port/;
const LABEL = /each label must be/;

test.each([
  ["", /empty label/],
  ["*", /mode "allow"/],
  ["*:443", FORM],
  ["*.com", WIDE],
  ["*.co.uk", WIDE],
  ["*.CO.UK.", WIDE],
  ["*.com:443", WIDE],
  ["*.anything.ck", WIDE],
  ["*.internal", WIDE],
  ["*.", /empty label/],
  ["*.*.example.com", FORM],
  ["a.*.example.com", FORM],
  ["*example.com", FORM],
  ["foo", /at least two labels/],
  ["foo:80", /at least two labels/],
  ["localhost", /at least two labels/],
  ["a.localhost", NEVER],
  ["*.local", WIDE],
  ["printer.local", NEVER],
  ["*.printer.local", NEVER],
  ["a..b", /empty label/],
  [".example.com", /empty label/],
  ["example.com..", /empty label/],
  ["http://x/", FORM],
  ["https://example.com", FORM],
  ["example.com/path", FORM],
  ["user@example.com", FORM],
  ["example.com?x", FORM],
  ["example.com#x", FORM],
  ["example%2ecom", FORM],
  ["example.com\\", FORM],
  ["10.0.0.0/8", /ranges/],
  ["8.8.8.8/32", /ranges/],
  ["::1", /IPv6/],
  ["[::1]", /IPv6/],
  ["[::1]:80", /IPv6/],
  ["::ffff:10.0.0.1", /IPv6/],
  ["2001:db8::1", /IPv6/],
  [" example.com", SPACE],
  ["example.com ", SPACE],
  ["exam ple.com", SPACE],
  ["example.com\n", SPACE],
  ["example\u0000.com", SPACE],
  ["example\u00a0.com", SPACE],
  ["exam\u00adple.com", SPACE],
  ["exam\u200bple.com", SPACE],
  ["exam\u200dple.com", SPACE],
  ["example.com:", /port/],
  ["example.com:0", /port/],
  ["example.com:080", /port/],
  ["example.com:65536", /port/],
  ["example.com:+80", /port/],
  ["example.com:８０", /port/],
  ["0x7f.1", NUMBER],
  ["0x7f.0.0.0x1", NUMBER],
  ["127.1", NUMBER],
  ["127.0.1", NUMBER],
  ["0177.0.0.1", NUMBER],
  ["2130706433", NUMBER],
  ["0x7f000001", NUMBER],
  ["017700000001", NUMBER],
  ["1.2.3.4.", NUMBER],
  ["1.2.3.256", NUMBER],
  ["1.2.3.04", NUMBER],
  ["1.2.3.4.5", NUMBER],
  ["example.123", NUMBER],
  ["*.1.2.3.4", NUMBER],
  ["１２７.0.0.1", /look-alikes/],
  ["127。0。0。1", /look-alikes/],
  ["example．com", /look-alikes/],
  ["ｅxample.com", /look-alikes/],
  ["ﬁle.example.com", /look-alikes/],
  ["xn--a.com", /internationalised/],
  ["-a.example.com", LABEL],
  ["a-.example.com", LABEL],
  ["a!b.example.com", LABEL],
  [`${"a".repeat(64)}.example.com`, LABEL],
  [`${"abcdefg.".repeat(31)}abc.com`, /at most 253/],
  ["a".repeat(256), /at most 255/],
  ["\ud800.com", /valid Unicode/],
  ["10.0.0.5", NEVER],
  ["10.0.0.5:22", NEVER],
  ["0.0.0.0", NEVER],
  ["100.64.0.1", NEVER],
  ["127.0.0.1", NEVER],
  ["169.254.169.254", NEVER],
  ["168.63.129.16", NEVER],
  ["172.16.0.1", NEVER],
  ["172.31.255.255", NEVER],
  ["192.168.1.1", NEVER],
  ["198.18.0.1", NEVER],
  ["224.0.0.1", NEVER],
  ["240.0.0.1", NEVER],
  ["255.255.255.255", NEVER],
  ["93.184.216.34", NEVER],
  ["198.51.100.7", NEVER],
  ["203.0.113.7", NEVER],
  ["preview.example.net", NEVER],
  ["3000-abc.preview.example.net", NEVER],
  ["*.preview.example.net", NEVER],
  ["*.example.net", NEVER],
  ["*.example.net:8443", NEVER],
  ["dns.google", /bypass/],
  ["Cloudflare-DNS.com.", /bypass/],
  ["mozilla.cloudflare-dns.com:443", /bypass/],
  ["abc123.dns.nextdns.io", /bypass/],
  ["*.opendns.com", /bypass/],
  ["*.quad9.net", /bypass/],
  ["cloudflare-ech.com", /bypass/],
  ["*.cloudflare-ech.com", /bypass/],
])("%j is no entry", (text, reason) => {
  expect(parse(text)).toEqual({ reason: expect.stringMatching(reason) });
});

test.each([
  ["9.9.9.0", "9.9.9.0/24"],
  ["9.9.9.255:443", "9.9.9.0/24"],
  ["10.0.0.5", "10.0.0.0/8"],
  ["203.0.113.7:22", "203.0.113.0/24"],
])("%s is refused with the range that it lies in", (address, range) => {
  const policy = { mode: "deny" as const, allow: ["9.9.8.255", address] };
  expect(() => normalPolicy(policy, OWN, "allow")).toThrow(`allow[1]: lies in ${range}, which is `);
});

test("a policy may list what the operator opened of private addresses, and no other port or address", () => {
  for (const entry of ["10.1.2.3:443", "10.1.2.3", "10.2.0.255:8080"])
    expect(parse(entry)).toEqual({ entry });
  expect(parse("10.1.2.3:80")).toEqual({ reason: expect.stringContaining("did not open port 80") });
  for (const entry of ["10.1.2.4:443", "10.2.1.0:8080", "10.2.1.0"])
    expect(parse(entry)).toEqual({ reason: expect.stringContaining("lies in 10.0.0.0/8") });
});

test("a policy names index and reason of the first entry it refuses", () => {
  const policy = { mode: "allow" as const, allow: ["example.com", "127.1", "*"] };
  expect(() => normalPolicy(policy, OWN, "allow")).toThrow(
    /^allow\[1\]: must be an IPv4 address .*"127\.1"$/,
  );
});

test("of entries that are equal once normalised the first one stays", () => {
  const allow = ["b.example.com", "a.example.com", "B.example.com.", "8.8.4.4", "a.example.com:80"];
  expect(normalPolicy({ mode: "deny", allow }, OWN, "allow")).toEqual({
    mode: "deny",
    allow: ["b.example.com", "a.example.com", "8.8.4.4", "a.example.com:80"],
  });
});

test("no list is an empty list", () => {
  expect(normalPolicy({ mode: "deny" }, OWN, "allow")).toEqual({ mode: "deny", allow: [] });
});

const pieces = fc.oneof(
  fc.constantFrom(
    "*",
    ".",
    ":",
    "-",
    "_",
    "0x",
    "xn--",
    "com",
    "example",
    "127",
    "0",
    "1",
    "256",
    "８",
    "ü",
    "。",
    "/",
  ),
  fc.string({ unit: "grapheme", maxLength: 4 }),
);
const candidates = fc.oneof(
  fc.array(pieces, { maxLength: 12 }).map((parts) => parts.join("")),
  fc.domain(),
  fc.ipV4(),
  fc.webUrl(),
  fc.tuple(fc.domain(), fc.integer({ min: -1, max: 70_000 })).map(([host, port]) => `${host}:${port}`),
);
const NORMAL =
  /^(\*\.)?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)+(:[1-9][0-9]{0,4})?$/;

test("every accepted entry is in the normal form, which is its own normal form", () => {
  fc.assert(
    fc.property(candidates, (text) => {
      const parsed = parse(text);
      if ("reason" in parsed) {
        expect(parsed.reason).not.toBe("");
        return;
      }
      expect(parsed.entry).toMatch(NORMAL);
      expect(parse(parsed.entry)).toEqual(parsed);
    }),
    { numRuns: 3000 },
  );
});

test("letter case and one trailing dot never make another entry", () => {
  fc.assert(
    fc.property(fc.domain(), (host) => {
      expect(parse(`${host.toUpperCase()}.`)).toEqual(parse(host));
    }),
  );
});

test("an address is accepted unchanged, or not at all", () => {
  fc.assert(
    fc.property(fc.ipV4(), (address) => {
      expect([{ entry: address }, { reason: expect.stringMatching(NEVER) }]).toContainEqual(parse(address));
    }),
  );
});
