import fc from "fast-check";
import { expect, test } from "vitest";
import { readChallenges } from "./challenge.ts";

const read = (...headers: string[]) =>
  readChallenges(headers).map(({ scheme, parameters }) => ({ scheme, ...Object.fromEntries(parameters) }));

test.each([
  [
    'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push"',
    [
      {
        scheme: "bearer",
        realm: "https://auth.docker.io/token",
        service: "registry.docker.io",
        scope: "repository:a/b:pull,push",
      },
    ],
  ],
  ['Basic realm="Registry"', [{ scheme: "basic", realm: "Registry" }]],
  ["basic realm=Registry", [{ scheme: "basic", realm: "Registry" }]],
  ['BEARER  Realm = "a" , SERVICE=b', [{ scheme: "bearer", realm: "a", service: "b" }]],
  [
    'Bearer realm="a", Basic realm="b"',
    [
      { scheme: "bearer", realm: "a" },
      { scheme: "basic", realm: "b" },
    ],
  ],
  ['Negotiate, Basic realm="b"', [{ scheme: "negotiate" }, { scheme: "basic", realm: "b" }]],
  ['Bearer realm="a \\"b\\" \\\\"', [{ scheme: "bearer", realm: 'a "b" \\' }]],
  ['Bearer realm="first",realm="second"', [{ scheme: "bearer", realm: "first" }]],
  ['Bearer realm="never closed', [{ scheme: "bearer" }]],
  ["Bearer", [{ scheme: "bearer" }]],
  ["", []],
  ["===", []],
])("%s", (header, challenges) => {
  expect(read(header)).toEqual(challenges);
});

test("challenges of several headers are read in their order", () => {
  expect(read('Basic realm="b"', 'Bearer realm="a"')).toEqual([
    { scheme: "basic", realm: "b" },
    { scheme: "bearer", realm: "a" },
  ]);
});

test("a header of more than 8 KiB is not read", () => {
  expect(read(`Basic realm="${"a".repeat(9_000)}"`)).toEqual([]);
});

test("any header is read to an end", () => {
  const part = fc.constantFrom("Bearer", "Basic", " ", ",", "=", '"', "\\", "realm", "\t", "a");
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(part, { maxLength: 200 }).map((parts) => parts.join("")),
      ),
      (text) => Array.isArray(readChallenges([text])),
    ),
  );
});
