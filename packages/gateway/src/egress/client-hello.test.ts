import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { buildHello, captureHello, extension, serverNames, toRecords } from "../../test-support/hello.ts";
import { readHello } from "./client-hello.ts";

const NAMED = { state: "named", name: "example.com" };
const MALFORMED = { state: "refused", reason: "malformed" };
const NO_NAME = { state: "refused", reason: "no_name" };
const named = [serverNames(["example.com"])];

describe("a hello names its server", () => {
  test("as a real client sends it, with TLS 1.2 and 1.3", async () => {
    for (const maxVersion of ["TLSv1.2", "TLSv1.3"] as const) {
      const hello = await captureHello({ servername: "example.com", maxVersion });
      expect(readHello(hello)).toEqual(NAMED);
    }
  });

  test("whole at whatever byte it is cut into segments, and not before its last byte", async () => {
    const hello = await captureHello({ servername: "example.com" });
    for (let end = 0; end < hello.length; end += 1)
      expect(readHello(hello.subarray(0, end))).toEqual({ state: "more" });
    expect(readHello(hello)).toEqual(NAMED);
  });

  test("in three records, and in records of one byte as long as they are few", () => {
    const message = buildHello(named);
    expect(readHello(toRecords(message, Math.ceil(message.length / 3)))).toEqual(NAMED);
    expect(readHello(toRecords(message, 2))).toEqual(NAMED);
    expect(readHello(toRecords(message, 1))).toEqual(MALFORMED);
  });

  test("in another spelling of the same name", () => {
    expect(readHello(toRecords(buildHello([serverNames(["EXAMPLE.com."])])))).toEqual(NAMED);
  });

  test("of TLS 1.0, with GREASE, and with an encrypted inner hello: the outer name counts", () => {
    const grease = extension(0x2a2a, Buffer.alloc(1));
    const encrypted = extension(0xfe0d, Buffer.concat([Buffer.alloc(10), Buffer.from("inner.evil.tld")]));
    expect(readHello(toRecords(buildHello(named, 0x0301), 16_384, 0x0301))).toEqual(NAMED);
    expect(readHello(toRecords(buildHello([grease, ...named, encrypted])))).toEqual(NAMED);
  });

  test("also when more follows in records of its own", () => {
    const early = Buffer.from([20, 3, 3, 0, 1, 1]);
    expect(readHello(Buffer.concat([toRecords(buildHello(named)), early]))).toEqual(NAMED);
  });
});

describe("a hello has no name", () => {
  test.each([
    ["without extensions", buildHello(undefined)],
    ["without that extension", buildHello([extension(10, Buffer.alloc(4))])],
    ["when it is an IPv4 address", buildHello([serverNames(["93.184.216.34"])])],
    ["when it is an IPv6 address", buildHello([serverNames(["2606:2800::1"])])],
  ])("%s", (_, message) => {
    expect(readHello(toRecords(message))).toEqual(NO_NAME);
  });
});

describe("a hello is malformed", () => {
  const good = toRecords(buildHello(named));
  const changed = (offset: number, value: number) => {
    const bytes = Buffer.from(good);
    bytes[offset] = value;
    return bytes;
  };
  test.each<[string, Buffer]>([
    ["with two names", toRecords(buildHello([serverNames(["example.com", "evil.tld"])]))],
    ["with the extension twice", toRecords(buildHello([...named, serverNames(["evil.tld"])]))],
    ["with a name of an unknown kind", toRecords(buildHello([serverNames(["example.com"], 1)]))],
    ["with an empty list", toRecords(buildHello([extension(0, Buffer.from([0, 0]))]))],
    ["with an empty name", toRecords(buildHello([serverNames([""])]))],
    ["with a NUL in its name", toRecords(buildHello([serverNames(["example.com\0.evil.tld"])]))],
    ["with userinfo in its name", toRecords(buildHello([serverNames(["example.com@evil"])]))],
    ["with one label", toRecords(buildHello([serverNames(["localhost"])]))],
    ["with a number for an address", toRecords(buildHello([serverNames(["127.1"])]))],
    ["of 40 KiB", toRecords(buildHello([...named, extension(21, Buffer.alloc(40_000))]))],
    ["that says it is longer than 16 KiB", toRecords(Buffer.from([1, 0, 0x40, 0x01]))],
    ["of another handshake type", changed(5, 2)],
    ["in a record of another type", changed(0, 23)],
    ["in a record of another protocol", changed(1, 2)],
    ["in an empty record", Buffer.from([22, 3, 1, 0, 0])],
    ["in a record longer than there are", Buffer.from([22, 3, 1, 0x40, 0x01])],
    ["with a byte behind its extensions", toRecords(Buffer.concat([buildHello(named), Buffer.alloc(1)]))],
    [
      "with another record in its midst",
      Buffer.concat([good.subarray(0, 3), Buffer.from([0, 2, 1, 0]), Buffer.from([23, 3, 3])]),
    ],
    ["as HTTP", Buffer.from("GET / HTTP/1.1\r\n\r\n")],
    ["as SSH", Buffer.from("SSH-2.0-OpenSSH_9.2\r\n")],
  ])("%s", (_, bytes) => {
    expect(readHello(good)).toEqual(NAMED);
    expect(readHello(bytes)).toEqual(MALFORMED);
  });

  test("or names what it names, whatever byte of it is changed; nothing is thrown", () => {
    fc.assert(
      fc.property(fc.nat(good.length - 1), fc.integer({ min: 0, max: 255 }), (offset, value) => {
        expect(["more", "named", "refused"]).toContain(readHello(changed(offset, value)).state);
      }),
    );
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), (bytes) => {
        expect(readHello(Buffer.from(bytes)).state).not.toBe("named");
      }),
    );
  });
});
