import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { apiHostOf, normalRegistry, parseReference, textOfReference } from "./reference.ts";
import { RegistryError } from "./registry-error.ts";

const DIGEST = `sha256:${"0123456789abcdef".repeat(4)}`;

describe("a reference", () => {
  test.each([
    ["debian", "docker.io/library/debian:latest"],
    ["debian:13", "docker.io/library/debian:13"],
    ["owner/app", "docker.io/owner/app:latest"],
    ["docker.io/debian", "docker.io/library/debian:latest"],
    ["index.docker.io/owner/app:1", "docker.io/owner/app:1"],
    ["registry-1.docker.io/debian", "docker.io/library/debian:latest"],
    ["library/debian", "docker.io/library/debian:latest"],
    ["ghcr.io/owner", "ghcr.io/owner:latest"],
    ["GHCR.io/owner/app", "ghcr.io/owner/app:latest"],
    ["localhost/app", "localhost/app:latest"],
    ["localhost:5000/app:v1", "localhost:5000/app:v1"],
    ["registry.example.com:5000/a/b/c:V1.2_3-x", "registry.example.com:5000/a/b/c:V1.2_3-x"],
    ["registry.example.com:443/a", "registry.example.com/a:latest"],
    ["europe-west1-docker.pkg.dev/project/repo/app", "europe-west1-docker.pkg.dev/project/repo/app:latest"],
    ["LocalHost/app", "localhost/app:latest"],
    ["intranet:443/app", "intranet:443/app:latest"],
    ["10.1.2.3/app", "10.1.2.3/app:latest"],
    [`debian@${DIGEST}`, `docker.io/library/debian@${DIGEST}`],
    [`debian:13@${DIGEST}`, `docker.io/library/debian:13@${DIGEST}`],
    [`host:5000/a@sha512:${"ab".repeat(64)}`, `host:5000/a@sha512:${"ab".repeat(64)}`],
    ["a__b/c--d/e.f", "docker.io/a__b/c--d/e.f:latest"],
  ])("%s is read as %s", (text, full) => {
    expect(textOfReference(parseReference(text))).toBe(full);
    expect(textOfReference(parseReference(full))).toBe(full);
  });

  test.each([
    ["", "has no path"],
    ["debian:", "has a malformed tag"],
    ["debian:.1", "has a malformed tag"],
    [`debian:${"a".repeat(129)}`, "has a malformed tag"],
    ["debian:1:2", "has a malformed tag"],
    ["https://ghcr.io/owner/app", "has a scheme"],
    ["docker://debian", "has a scheme"],
    ["user:secret@ghcr.io/app", "has a user"],
    [`user:secret@ghcr.io/app@${DIGEST}`, "has a user"],
    ["debian@latest", "has no digest after its @"],
    ["debian@sha256:abc", "has no digest after its @"],
    [`debian@${DIGEST.toUpperCase()}`, "has no digest after its @"],
    [`debian@md5:${"0".repeat(32)}`, "has no digest after its @"],
    ["Debian", "has capital letters in its path"],
    ["ghcr.io/Owner/app", "has capital letters in its path"],
    ["Owner/app", "has capital letters in its path"],
    ["ghcr.io/", "has no path"],
    ["ghcr.io//app", "has a malformed path"],
    ["ghcr.io/app/", "has a malformed path"],
    ["ghcr.io/../app", "has a malformed path"],
    ["ghcr.io/a/../../b", "has a malformed path"],
    ["ghcr.io/a_-b", "has a malformed path"],
    ["ghcr.io/a%2fb", "has a malformed path"],
    ["ghcr.io/a?b", "has a malformed path"],
    ["ghcr.io:0/app", "has a malformed host"],
    ["ghcr.io:65536/app", "has a malformed host"],
    ["ghcr.io:080/app", "has a malformed host"],
    ["ghcr.io:/app", "has a malformed host"],
    ["-ghcr.io/app", "has a malformed host"],
    ["ghcr..io/app", "has a malformed host"],
    ["ghcr.io./app", "has a malformed host"],
    [".ghcr.io/app", "has a malformed host"],
    ["[::1]:5000/app", "has a malformed host"],
    ["user@10.0.0.1/app", "has a user"],
    ["0x7f.1/app", "has a malformed host"],
    ["127.1/app", "has a malformed host"],
    ["10.1.2.03/app", "has a malformed host"],
    ["1.0x7f000001/app", "has a malformed host"],
    ["debian 13", "has spaces or characters outside of ASCII"],
    ["debian\n", "has spaces or characters outside of ASCII"],
    ["dëbian", "has spaces or characters outside of ASCII"],
    ["a".repeat(256), "has a path of more than 255 characters"],
    [`ghcr.io/${"a/".repeat(600)}a`, "is longer than 1024 characters"],
    ["0123456789abcdef".repeat(4), "is a bare digest"],
  ])("%.60j is refused", (text, why) => {
    const error = errorOf(() => parseReference(text));
    expect(error).toMatchObject({ code: "bad_reference" });
    expect(error?.message).toContain(why);
    expect(error?.message).toContain("expected [host[:port]/]path[:tag][@sha256:…]");
    expect(error?.message).not.toContain("secret");
  });

  test("of any text is refused, or has one full form", () => {
    const part = fc.constantFrom(
      "a",
      "B",
      ".",
      ":",
      "/",
      "@",
      "-",
      "_",
      "1",
      "io",
      "sha256:",
      "localhost",
      DIGEST,
    );
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.array(part).map((parts) => parts.join("")),
        ),
        (text) => {
          const error = errorOf(() => parseReference(text));
          if (error) return error instanceof RegistryError;
          const reference = parseReference(text);
          const path = `/v2/${reference.repository}/manifests/${reference.digest ?? reference.tag}`;
          const url = new URL(path, `https://${apiHostOf(reference.registry)}`);
          expect(url.pathname).toBe(path);
          expect(url.host).toBe(apiHostOf(reference.registry));
          return textOfReference(parseReference(textOfReference(reference))) === textOfReference(reference);
        },
      ),
    );
  });
});

describe("a registry", () => {
  test.each([
    ["GHCR.IO", "ghcr.io"],
    ["ghcr.io:443", "ghcr.io"],
    ["hub.example.com:5000", "hub.example.com:5000"],
    ["index.docker.io", "docker.io"],
    ["registry-1.docker.io:443", "docker.io"],
    ["registry.hub.docker.com", "docker.io"],
  ])("%s is the same as %s", (text, name) => {
    expect(normalRegistry(text)).toBe(name);
  });

  test.each(["", "https://ghcr.io", "ghcr.io/v2", "user@ghcr.io", "a b", "::1", "ghcr.io:http"])(
    "is not named by %j",
    (text) => {
      expect(normalRegistry(text)).toBeUndefined();
    },
  );

  test("of Docker Hub is asked at its own host", () => {
    expect(apiHostOf("docker.io")).toBe("registry-1.docker.io");
    expect(apiHostOf("ghcr.io")).toBe("ghcr.io");
  });
});

function errorOf(work: () => unknown): Error | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    return error as Error;
  }
}
