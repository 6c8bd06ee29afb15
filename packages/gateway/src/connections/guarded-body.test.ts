import { Writable } from "node:stream";
import { expect, test, vi } from "vitest";
import { GuardedBody } from "./guarded-body.ts";
import { Needles } from "./needles.ts";
import { formsOf } from "./secret-forms.ts";
import { SecretScan } from "./secret-scan.ts";
import { SessionShare } from "./session-share.ts";
import { Turns } from "./turns.ts";

const KIB = 1024;
const SECRET = "sk-live-0123456789";
const needles = new Needles(formsOf(SECRET));
/** Bytes by which what passes is behind. */
const BEHIND = 6 * needles.longest;

/** A body of an answer to a guest that takes everything, and the count of what was passed on. */
function body(share: Pick<SessionShare, "search">) {
  const passed = { bytes: 0, isHit: false };
  const to = new Writable({
    write(chunk: Buffer, _encoding, done) {
      passed.bytes += chunk.length;
      done();
    },
  });
  const onHit = () => {
    passed.isHit = true;
  };
  const guard = <Args extends unknown[]>(handler: (...args: Args) => void) => handler;
  const scan = new SecretScan(needles);
  return { passed, guarded: new GuardedBody({ scan, share, guard, to, onEnd: () => {}, onHit }) };
}

test("a session's small answer is searched before the rest of another session's many large ones", async () => {
  const turns = new Turns();
  const [greedy, modest] = [new SessionShare(turns), new SessionShare(turns)];
  const large = Array.from({ length: 200 }, () => body(greedy));
  for (const { guarded } of large) guarded.write(Buffer.alloc(256 * KIB, "x"));
  const small = body(modest);
  small.guarded.end("small");
  const searched = () => large.reduce((sum, { passed }) => sum + passed.bytes, 0);
  while (small.passed.bytes === 0) await new Promise((resolve) => setImmediate(resolve));
  // Two turns of the event loop, and one piece.
  expect(searched()).toBeLessThanOrEqual((2 * 128 + 16) * KIB);
  while (searched() < 200 * 256 * KIB) await new Promise((resolve) => setImmediate(resolve));
});

test("a body that waits for its turn while the exchange ends passes nothing more", async () => {
  const share = new SessionShare(new Turns());
  const { guarded, passed } = body(share);
  guarded.write(Buffer.alloc(300 * KIB, "x"));
  expect(passed.bytes).toBe(128 * KIB - BEHIND);
  guarded.destroy();
  for (let at = 0; at < 10; at++) await new Promise((resolve) => setImmediate(resolve));
  expect(passed.bytes).toBe(128 * KIB - BEHIND);
});

test("a message of an origin that waits passes whole, also if it ends in a few characters of the secret", async () => {
  const { guarded, passed } = body(new SessionShare(new Turns()));
  for (const message of ["a question", `one that ends in ${SECRET.slice(0, 8)}`]) {
    const before = passed.bytes;
    guarded.write(message);
    await vi.waitFor(() => expect(passed.bytes).toBe(before + message.length), { timeout: 30_000 });
  }
});

test("a long beginning of the secret before a silence ends the body, so that no guess costs nothing", async () => {
  const { guarded, passed } = body(new SessionShare(new Turns()));
  guarded.write(`begins ${SECRET.slice(0, -2)}`);
  await vi.waitFor(() => expect(passed).toEqual({ bytes: "begins ".length, isHit: true }), {
    timeout: 30_000,
  });
});

test("chunks that are searched one within the other begin one silence", () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    let first: (() => void) | undefined;
    const search = (_bytes: number, work: () => void) => {
      if (first) work();
      else first = work;
    };
    const { guarded } = body({ search });
    for (const chunk of ["one", "two"]) guarded.write(chunk);
    first?.();
    expect(vi.getTimerCount()).toBe(1);
  } finally {
    vi.useRealTimers();
  }
});

test("bytes behind such a beginning are dropped, also those that complete the secret", async () => {
  const { guarded, passed } = body(new SessionShare(new Turns()));
  guarded.write(`begins ${SECRET.slice(0, -2)}`);
  await vi.waitFor(() => expect(passed.isHit).toBe(true), { timeout: 30_000 });
  guarded.write(`${SECRET.slice(-2)} and more`);
  for (let at = 0; at < 10; at++) await new Promise((resolve) => setImmediate(resolve));
  expect(passed.bytes).toBe("begins ".length);
});

test("a body that ends in a long beginning of the secret, without a silence, passes like one that ends otherwise", async () => {
  for (const guess of [SECRET.slice(0, -2), `${SECRET.slice(0, -3)}!`]) {
    const { guarded, passed } = body(new SessionShare(new Turns()));
    guarded.end(`ends in ${guess}`);
    const bytes = `ends in ${guess}`.length;
    await vi.waitFor(() => expect(passed).toEqual({ bytes, isHit: false }), { timeout: 30_000 });
  }
});

test("a secret across two pieces of one chunk is found, and nothing of it passes", async () => {
  const { guarded, passed } = body(new SessionShare(new Turns()));
  guarded.write(Buffer.from(`${"x".repeat(16 * KIB - 5)}${SECRET}`));
  await new Promise((resolve) => setImmediate(resolve));
  expect(passed).toEqual({ bytes: 16 * KIB - 5, isHit: true });
});
