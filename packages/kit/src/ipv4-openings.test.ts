import { expect, test } from "vitest";
import { isOpen, readOpenings, textOfOpening, withoutOwn } from "./ipv4-openings.ts";

const RULES = {
  openable: ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"],
  closed: ["10.220.0.0/16", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4"],
  closedPorts: [53],
};
const read = (text: string) => readOpenings("OPEN", text, RULES);

test("an opening is an address or a range, with a port", () => {
  expect(read(" 10.1.2.3:443, 10.2.0.0/24:8080,,172.16.0.0/12:1,192.168.0.0/16:65535")).toEqual([
    { range: "10.1.2.3/32", port: 443 },
    { range: "10.2.0.0/24", port: 8080 },
    { range: "172.16.0.0/12", port: 1 },
    { range: "192.168.0.0/16", port: 65535 },
  ]);
  expect(read("")).toEqual([]);
});

test("what is opened twice counts once, by its widest range", () => {
  const text = "10.2.0.7:80,10.2.0.0/24:80,10.2.0.7:81,10.2.0.0/24:80,10.2.0.128/25:80";
  expect(read(text).map(textOfOpening)).toEqual(["10.2.0.0/24:80", "10.2.0.7:81"]);
});

test.each([
  ["10.1.2.3", "which has no port"],
  ["10.1.2.0/24", "which has no port"],
  ["10.1.2.3:", "a port is a whole number from 1 to 65535"],
  ["10.1.2.3:0", "a port is a whole number from 1 to 65535"],
  ["10.1.2.3:65536", "a port is a whole number from 1 to 65535"],
  ["10.1.2.3:080", "a port is a whole number from 1 to 65535"],
  ["10.1.2.3:80+443", "a port is a whole number from 1 to 65535"],
  ["10.1.2.3:https", "a port is a whole number from 1 to 65535"],
  ["mirror.example.com:443", "a name, which may change its address"],
  ["localhost:443", "a name, which may change its address"],
  ["10.1.2:443", "expected IPv4 addresses and ranges"],
  ["010.1.2.3:443", "expected IPv4 addresses and ranges"],
  ["10.1.2.3/0:443", "expected IPv4 addresses and ranges"],
  ["10.1.2.3/33:443", "expected IPv4 addresses and ranges"],
  ["10.1.2.3/8/8:443", "expected IPv4 addresses and ranges"],
  ["10.1.2.0/024:443", "expected IPv4 addresses and ranges"],
  [":443", "expected IPv4 addresses and ranges"],
  ["[fd00::1]:443", "which is not IPv4"],
  ["fd00::1", "which is not IPv4"],
  ["10.2.0.5/24:8080", "write 10.2.0.0/24"],
  ["10.0.0.1/8:8080", "write 10.0.0.0/8"],
  ["8.8.4.4:443", "which is public; public addresses need no opening"],
  ["8.8.0.0/16:443", "which is public; public addresses need no opening"],
  ["172.0.0.0/8:443", "which is more than 172.16.0.0/12"],
  ["10.220.3.4:443", "which has addresses of 10.220.0.0/16"],
  ["10.0.0.0/8:443", "which has addresses of 10.220.0.0/16"],
  ["127.0.0.1:443", "which has addresses of 127.0.0.0/8"],
  ["169.254.169.254:80", "which has addresses of 169.254.0.0/16"],
  ["10.1.2.3:53", "the ports 53 are closed"],
])("%s is refused", (wrong, why) => {
  expect(() => read(`10.1.2.3:80,${wrong}`)).toThrow(`OPEN names "${wrong}"`);
  expect(() => read(wrong)).toThrow(why);
});

test("the host's own addresses stay closed in a range, and may not be named alone", () => {
  const openings = read("10.2.0.0/30:80,10.3.0.1:81");
  expect(withoutOwn("OPEN", openings, ["10.2.0.1", "93.184.216.34"]).map(textOfOpening)).toEqual([
    "10.2.0.0:80",
    "10.2.0.2/31:80",
    "10.3.0.1:81",
  ]);
  expect(() => withoutOwn("OPEN", openings, ["10.3.0.1"])).toThrow(
    'OPEN names "10.3.0.1:81", an address of this host',
  );
});

test("what is open is exactly the named port of the named addresses", () => {
  const openings = read("10.1.2.3:443,10.2.0.0/24:8080");
  expect(isOpen(openings, "10.1.2.3", 443)).toBe(true);
  expect(isOpen(openings, "10.2.0.255", 8080)).toBe(true);
  expect(isOpen(openings, "10.2.0.9")).toBe(true);
  for (const [address, port] of [
    ["10.1.2.3", 8080],
    ["10.1.2.4", 443],
    ["10.2.1.0", 8080],
    ["10.2.0.9", 443],
    ["10.1.2.4", undefined],
  ] as const)
    expect(isOpen(openings, address, port), `${address}:${port}`).toBe(false);
});
