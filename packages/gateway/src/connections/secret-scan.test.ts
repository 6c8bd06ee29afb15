import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Needles } from "./needles.ts";
import { formsOf, secretsIn } from "./secret-forms.ts";
import { hasSecret, SecretScan } from "./secret-scan.ts";

const SECRET = 'sk-live/Zx9+"q\\7=';
const needles = new Needles(formsOf(SECRET));

/** Reads the text in chunks of this size: what passed, and whether the secret was found. */
function readAll(text: string | Buffer, size: number, from = needles): { passed: string; isHit: boolean } {
  const scan = new SecretScan(from);
  const bytes = Buffer.from(text as string, "latin1");
  let passed = "";
  for (let at = 0; at < bytes.length; at += size) {
    const { clean, isHit } = scan.read(bytes.subarray(at, at + size));
    passed += clean.toString("latin1");
    if (isHit) return { passed, isHit };
  }
  return { passed: passed + scan.release().toString("latin1"), isHit: false };
}

const base64 = (before: string) => Buffer.from(`${before}${SECRET}after`).toString("base64");
const everyByte = (format: (code: number) => string) =>
  [...SECRET].map((character) => format(character.charCodeAt(0))).join("");
const hex = (code: number, digits: number) => code.toString(16).padStart(digits, "0");
const FORMS: [string, string][] = [
  ["as it is", SECRET],
  ["in base64", base64("")],
  ["in base64 one byte into a group", base64("a")],
  ["in base64 two bytes into a group", base64("ab")],
  ["in base64 behind a user's name", Buffer.from(`user:${SECRET}`).toString("base64")],
  ["in base64url", Buffer.from(`ab${SECRET}`).toString("base64url")],
  ["percent-escaped where it must be", encodeURIComponent(SECRET)],
  ["percent-escaped in lower case", encodeURIComponent(SECRET).replace(/%../g, (code) => code.toLowerCase())],
  ["percent-escaped in every byte", everyByte((code) => `%${hex(code, 2)}`)],
  ["as a JSON string", JSON.stringify(SECRET)],
  ["as a JSON string with escaped slashes", JSON.stringify(SECRET).replaceAll("/", "\\/")],
  ["as a JSON string of code points", everyByte((code) => `\\u${hex(code, 4)}`)],
  ["in base64 with escaped slashes in JSON", base64("").replaceAll("/", "\\/")],
  ["in base64, percent-escaped", encodeURIComponent(base64("ab"))],
];

describe("a secret is found, and no byte of it passes,", () => {
  test.each(FORMS)("%s, wherever chunks part it", (_, form) => {
    const text = `{"echo": "before ${form} behind"}`;
    for (let size = 1; size <= text.length; size++) {
      const { passed, isHit } = readAll(text, size);
      expect(isHit, `in chunks of ${size}`).toBe(true);
      expect(text.startsWith(passed)).toBe(true);
      expect(passed.length).toBeLessThanOrEqual('{"echo": "before '.length + 8);
      expect(passed.length).toBeGreaterThanOrEqual('{"echo": "before'.length);
    }
  });

  test("also right behind its own beginning and behind escapes that are cut short", () => {
    for (const before of [SECRET.slice(0, -1), "%", "%7", "\\", "\\u00", "%%%", "\\\\\\"]) {
      for (const size of [1, 2, 3, 1000]) {
        expect(readAll(`${before}${SECRET}`, size).isHit, `${before} ${size}`).toBe(true);
      }
    }
  });
});

test("text without the secret passes unchanged in any chunks", () => {
  const piece = fc.oneof(
    fc.constantFrom(
      SECRET.slice(0, -1),
      SECRET.slice(1),
      "%",
      "%4",
      "\\",
      "\\u00",
      "%25",
      base64("").slice(0, 12),
    ),
    fc.string({ maxLength: 20, unit: "binary" }).filter((text) => /^[\0-\xff]*$/.test(text)),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 20 }), fc.integer({ min: 1, max: 40 }), (pieces, size) => {
      const text = pieces.join("");
      fc.pre(!hasSecret(needles, text));
      expect(readAll(text, size)).toEqual({ passed: text, isHit: false });
    }),
    { numRuns: 500 },
  );
});

test("every secret is found in every form behind any text", () => {
  const secrets = fc.string({ minLength: 8, maxLength: 60, unit: fc.constantFrom(...'abAB01+/=-_%\\"') });
  fc.assert(
    fc.property(secrets, fc.string({ maxLength: 9, unit: "grapheme-ascii" }), (secret, before) => {
      const own = new Needles(formsOf(secret));
      const forms = [secret, encodeURIComponent(secret), JSON.stringify(secret)];
      const encoded = Buffer.from(`${before}${secret}!`).toString("base64");
      for (const form of [...forms, encoded]) expect(readAll(`${before} ${form}`, 7, own).isHit).toBe(true);
    }),
    { numRuns: 500 },
  );
});

test("a few characters that may begin a secret are released on demand, and the secret is found still", () => {
  const scan = new SecretScan(needles);
  expect(scan.read(Buffer.from("ends in sk-")).clean).toHaveLength(0);
  expect(scan.mayRelease).toBe(true);
  expect(scan.release().toString()).toBe("ends in sk-");
  expect(scan.mayRelease).toBe(false);
  expect(scan.read(Buffer.from(SECRET.slice(3, -1))).clean).toHaveLength(0);
  expect(scan.mayRelease).toBe(false);
  expect(scan.read(Buffer.from(SECRET.slice(-1)))).toEqual({ clean: Buffer.alloc(0), isHit: true });
});

describe("who guesses the secret by what an origin sends", () => {
  const own = new Needles(formsOf("ghp_0123456789abcdefghijklmnopqrstuvwxyz"));
  const guesses = [4, 5, 12, 39].map((right) => `ghp_0123456789abcdefghijklmnopqrstuvwxy`.slice(0, right));
  const written = (guess: string) => [guess, encodeURIComponent(guess), JSON.stringify(guess).slice(1, -1)];
  const escaped = (guess: string) =>
    [...guess].map((character) => `\\u${hex(character.charCodeAt(0), 4)}`).join("");

  test("sees as many bytes pass, however much of the guess is right", () => {
    for (const guess of guesses.flatMap((right) => [...written(right), escaped(right)])) {
      const scan = new SecretScan(own);
      const wrong = new SecretScan(own);
      const pieces = ["x".repeat(5_000) + guess, "y".repeat(300), "z".repeat(5_000)];
      const passes = (by: SecretScan, piece: string) => by.read(Buffer.from(piece)).clean.length;
      for (const piece of pieces)
        expect(passes(scan, piece), guess).toBe(passes(wrong, "-".repeat(piece.length)));
    }
  });

  test("is found in a long beginning, and gets what was held before it", () => {
    const long = own.shortest;
    for (const [right, isGuess] of [
      [8, false],
      [16, false],
      [17, true],
      [long - 1, true],
    ] as const) {
      const guess = "ghp_0123456789abcdefghijklmnopqrstuvwxyz".slice(0, right);
      for (const form of [...written(guess), escaped(guess)]) {
        const scan = new SecretScan(own);
        expect(scan.read(Buffer.from(`before ${form}`)).isHit).toBe(false);
        expect(scan.isGuess, `${form}: ${right} characters`).toBe(isGuess);
        if (isGuess) expect(scan.cut().toString()).toBe("before ");
      }
    }
  });

  test("is not found in a beginning that other bytes follow at once", () => {
    const secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    expect(readAll(`${secret.slice(0, 30)} ${secret.slice(0, 39)}!`, 7, own).isHit).toBe(false);
    const scan = new SecretScan(own);
    scan.read(Buffer.from(`${secret.slice(0, 39)}!`));
    expect(scan.isGuess).toBe(false);
  });
});

test("the secret of a header's value is what follows the scheme; of Basic also the pair and its password", () => {
  expect(secretsIn("Bearer abc")).toEqual(["abc"]);
  expect(secretsIn("abc")).toEqual(["abc"]);
  const pair = Buffer.from("user:pass:word").toString("base64");
  expect(secretsIn(`Basic ${pair}`)).toEqual([pair, "user:pass:word", "pass:word"]);
});

test.each(["correct-horse battery", "correct-horse ab"])(
  "a word before a blank may be a part of the secret: of %s nothing passes",
  (secret) => {
    const own = new Needles(secretsIn(secret).flatMap(formsOf));
    for (const size of [1, 5, 1_000])
      expect(readAll(`before ${secret} behind`, size, own)).toEqual({ passed: "before ", isHit: true });
  },
);

test("a secret of a few characters is not searched for", () => {
  expect(formsOf("abcde")).toEqual([]);
});

test("the longest secret takes less than half a megabyte, and one of 100 characters a few kilobytes", () => {
  const longest = Array.from({ length: 8_192 }, (_, at) =>
    String.fromCharCode(33 + ((at * at * 7) % 94)),
  ).join("");
  expect(new Needles(formsOf(longest)).bytes).toBeLessThan(450_000);
  expect(new Needles(formsOf(longest.slice(0, 100))).bytes).toBeLessThan(8_000);
});

test("nothing is found once the needles are forgotten", () => {
  const own = new Needles(formsOf(SECRET));
  expect(hasSecret(own, SECRET)).toBe(true);
  own.forget();
  expect(hasSecret(own, SECRET)).toBe(false);
});

test("the search takes linear time, also in text made to resemble the secret", () => {
  const long = "a".repeat(8_000);
  const own = new Needles(formsOf(`${long}b`));
  const scan = new SecretScan(own);
  const chunk = Buffer.alloc(64 * 1024, "a");
  const started = process.cpuUsage();
  for (let round = 0; round < 64; round++) expect(scan.read(chunk).isHit).toBe(false);
  // Computing, not waiting: a host may be busy.
  expect(process.cpuUsage(started).user).toBeLessThan(5_000_000);
});
