import { expect, test } from "vitest";
import { Credential } from "./credential.ts";

test("a credential that is forgotten has no value, and is found nowhere", () => {
  const credential = new Credential({ name: "X-Key", value: "secret-0123456789" });
  expect(credential.value()).toBe("secret-0123456789");
  expect(credential.isIn("a secret-0123456789 b")).toBe(true);
  credential.forget();
  expect(credential.value()).toBeUndefined();
  expect(credential.isIn("a secret-0123456789 b")).toBe(false);
});
