import { expect, test } from "vitest";
import { isPublicAddress, mayBePublic } from "./public-address.ts";

test.each(["8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "168.63.129.15", "2606:4700::1111"])(
  "%s is public",
  (address) => {
    expect(isPublicAddress(address)).toBe(true);
    expect(mayBePublic(address)).toBe(true);
  },
);

test.each([
  ["0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "168.63.129.16", "169.254.169.254"],
  ["172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1"],
  ["198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"],
  ["::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "4000::1"],
  // IPv4 within IPv6.
  ["::ffff:8.8.8.8", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "2001::1"],
])("%s and others are not public", (...addresses) => {
  for (const address of addresses) {
    expect({ address, isPublic: isPublicAddress(address) }).toEqual({ address, isPublic: false });
    expect(mayBePublic(address)).toBe(false);
  }
});

test.each(["", "localhost", "1.2.3", "0x7f.0.0.1", "0127.0.0.1", "2130706433", "8.8.8.8 ", "example.com"])(
  "%j is no address",
  (text) => {
    expect(isPublicAddress(text)).toBe(false);
  },
);

test.each(["localhost", "registry", "app.localhost", "metadata.google.internal", "nas.local", "x.home.arpa"])(
  "%s is a name of one host or network",
  (host) => {
    expect(mayBePublic(host)).toBe(false);
  },
);

test("a name of the internet may be public", () => {
  expect(mayBePublic("ghcr.io")).toBe(true);
});
