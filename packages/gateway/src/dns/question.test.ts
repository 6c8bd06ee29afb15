import { encode } from "dns-packet";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { readQuestion, TYPE, writeQuestion } from "./question.ts";

const good = encode({
  type: "query",
  id: 7,
  flags: 0x100,
  questions: [{ name: "WWW.Example.com", type: "A" }],
});
const changed = (offset: number, ...bytes: number[]) => {
  const message = Buffer.from(good);
  Buffer.from(bytes).copy(message, offset);
  return message;
};
const withName = (...name: number[]) =>
  Buffer.concat([good.subarray(0, 12), Buffer.from([...name, 0, 1, 0, 1])]);
const label = (text: string) => [text.length, ...Buffer.from(text, "latin1")];

describe("a question", () => {
  test("is read with its name in lower case and its bytes as they were", () => {
    expect(readQuestion(good)).toEqual({
      ...{ id: 7, isRecursionDesired: true, name: "www.example.com", type: TYPE.A },
      ...{ raw: good.subarray(12), udpLimit: 512 },
    });
  });

  test("says with EDNS how long an answer may be, within what passes unfragmented", () => {
    const withSize = (udpPayloadSize: number) =>
      readQuestion(
        encode({
          ...{ type: "query", id: 7, questions: [{ name: "a.b", type: "A" }] },
          additionals: [
            {
              type: "OPT",
              name: ".",
              udpPayloadSize,
              extendedRcode: 0,
              ednsVersion: 0,
              flags: 0,
              flag_do: false,
              options: [],
            },
          ],
        }),
      )?.udpLimit;
    expect([100, 1000, 60_000].map(withSize)).toEqual([512, 1000, 1232]);
  });

  test("is written back as it was read", () => {
    expect(
      readQuestion(Buffer.concat([good.subarray(0, 12), writeQuestion("a-b.example", 65)])),
    ).toMatchObject({
      ...{ name: "a-b.example", type: 65 },
    });
    for (const name of ["", "a..b", `${"a".repeat(64)}.b`, "a b.c"])
      expect(() => writeQuestion(name, 1)).toThrow();
  });
});

describe("a message is no question", () => {
  test.each<[string, Buffer]>([
    ["as an answer", changed(2, 0x81)],
    ["with another opcode", changed(2, 0x28)],
    ["cut short by its sender", changed(2, 0x03)],
    ["with no question", changed(4, 0, 0)],
    ["with two questions", changed(4, 0, 2)],
    ["with 65535 questions", changed(4, 255, 255)],
    ["with an answer", changed(6, 0, 1)],
    ["with an authority", changed(8, 0, 1)],
    ["with two additional records", changed(10, 0, 2)],
    ["with an additional record that is not there", changed(10, 0, 1)],
    ["of another class", changed(good.length - 2, 0, 3)],
    ["with a byte too many", Buffer.concat([good, Buffer.alloc(1)])],
    ["with a name that points at itself", withName(0xc0, 0x0c)],
    ["with a name that points into the header", withName(...label("a"), 0xc0, 0x00)],
    ["with a label of 64 bytes", withName(...label("a".repeat(64)), 0)],
    ["with a dot inside a label", withName(...label("good.example"), 0)],
    ["with a NUL in a label", withName(...label("a\0b"), ...label("c"), 0)],
    [
      "with a name of 256 bytes",
      withName(
        ...Array(4)
          .fill(label("a".repeat(63)))
          .flat(),
        0,
      ),
    ],
    ["without its name's end", good.subarray(0, 20)],
    ["without bytes", Buffer.alloc(0)],
  ])("%s", (_, message) => {
    expect(readQuestion(good)).not.toBeNull();
    expect(readQuestion(message)).toBeNull();
  });

  test("or one, whatever its bytes are; nothing is thrown", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), (bytes) => {
        readQuestion(Buffer.concat([good.subarray(0, 12), Buffer.from(bytes)]));
        readQuestion(Buffer.from(bytes));
      }),
    );
  });
});
