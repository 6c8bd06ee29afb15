import { expect, test } from "vitest";
import { checkRealm } from "./realm.ts";

const check = (registry: string, realm: string, realmHosts: string[] = []) =>
  checkRealm(realm, { origin: new URL(registry), realmHosts }).href;

test.each([
  ["https://registry-1.docker.io", "https://auth.docker.io/token"],
  ["https://ghcr.io", "https://ghcr.io/token"],
  ["https://europe-west1-docker.pkg.dev", "https://europe-west1-docker.pkg.dev/v2/token"],
  ["https://gcr.io", "https://gcr.io/v2/token"],
  ["https://registry.gitlab.com", "https://gitlab.com/jwt/auth"],
  ["https://registry.example.com:5000", "https://registry.example.com:5001/auth"],
  ["https://registry.example.co.uk", "https://auth.example.co.uk/token"],
  ["https://8.8.8.8", "https://8.8.8.8/token"],
  ["http://localhost:5000", "http://localhost:5000/token"],
])("%s may name %s", (registry, realm) => {
  expect(check(registry, realm)).toBe(realm);
});

test.each([
  ["https://registry.example.com", "http://registry.example.com/token", "without HTTPS"],
  ["https://registry.example.com", "http://169.254.169.254/latest", "without HTTPS"],
  ["http://localhost:5000", "http://localhost:5001/token", "without HTTPS"],
  ["https://registry.example.com", "https://auth.example.org/token", "of another domain"],
  ["https://registry.example.com", "https://auth.docker.io/token", "of another domain"],
  ["https://registry.example.co.uk", "https://auth.other.co.uk/token", "of another domain"],
  ["https://owner.github.io", "https://other.github.io/token", "of another domain"],
  ["https://registry.example.com", "https://registry.example.com.evil.org/token", "of another domain"],
  ["https://registry.example.com", "https://evilexample.com/token", "of another domain"],
  ["https://registry.example.com", "https://com/token", "of another domain"],
  ["https://8.8.8.8", "https://8.8.4.4/token", "of another domain"],
  ["https://registry.example.com", "https://10.0.0.1/token", "of another domain"],
  ["https://registry.example.com", "https://[::1]/token", "of another domain"],
  ["https://registry.example.com", "https://user:secret@registry.example.com/token", "with a user"],
  ["https://registry.example.com", "https://registry.example.com@evil.org/token", "with a user"],
  ["https://registry.example.com", "file:///etc/passwd", "without HTTPS"],
  ["https://registry.example.com", "//registry.example.com/token", "that is not an address"],
  ["https://registry.example.com", "Registry", "that is not an address"],
  ["https://registry.example.com", "", "that is not an address"],
])("%s may not name %s", (registry, realm, why) => {
  expect(() => check(registry, realm)).toThrow(why);
  expect(() => check(registry, realm)).toThrow(expect.objectContaining({ code: "realm_refused" }));
});

test("a host that the caller knows may be named", () => {
  expect(check("https://registry.example.com", "https://id.example.org/t", ["id.example.org"])).toBe(
    "https://id.example.org/t",
  );
});
