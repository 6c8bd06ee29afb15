import { randomBytes } from "node:crypto";
import { inspect } from "node:util";
import { expect, it } from "vitest";
import { requireStateKey, StateKey } from "./state-key.ts";

const bytes = randomBytes(32);
const key = StateKey.parse(bytes.toString("base64url"));

it("has an id that depends on the key alone, and other bytes for each purpose", () => {
  expect(StateKey.parse(bytes.toString("base64url")).id).toBe(key.id);
  expect(StateKey.parse(randomBytes(32).toString("base64url")).id).not.toBe(key.id);
  const derived = [key.derive("memory"), key.derive("device state"), key.derive("disk"), bytes];
  expect(new Set(derived.map((one) => one.toString("hex"))).size).toBe(4);
  expect(key.diskPassphrase).toMatch(/^[0-9a-f]{64}$/);
});

it("shows its id alone", () => {
  expect(JSON.parse(JSON.stringify(key))).toEqual({ id: key.id });
  for (const form of ["hex", "base64", "base64url"] as const)
    expect(inspect(key, { showHidden: true, depth: 9 })).not.toContain(bytes.toString(form));
});

it.each([undefined, "", "short", `${bytes.toString("base64url")}A`, ["a", "b"]])(
  "refuses %j without repeating it",
  (text) => {
    expect(() => StateKey.parse(text)).toThrow("the state key does not fit the contract");
  },
);

it("is required by what was sealed with it", () => {
  expect(requireStateKey(key.id, key, "the snapshot")).toBe(key);
  const refusal = expect.objectContaining({ code: "wrong_state_key" });
  expect(() => requireStateKey(key.id, undefined, "the snapshot")).toThrow(refusal);
  const other = StateKey.parse(randomBytes(32).toString("base64url"));
  expect(() => requireStateKey(key.id, other, "the snapshot")).toThrow(refusal);
});
