import type { RequestListener } from "node:http";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { makeImage, REPOSITORY, serveImage } from "../test-support/image.ts";
import { failureOfPull, pull, QUICK_LIMITS, REGISTRY, withDirectory } from "../test-support/pull.ts";
import { StandIn } from "../test-support/stand-in.ts";
import { pingRegistry } from "./ping-registry.ts";
import type { PullInput } from "./pull-image.ts";

const AUTH = "auth.example.com";
const EVIL = "evil.example.org";
const CREDENTIAL = { registry: REGISTRY, username: "robot$ci", password: "s3cret:with colon" };
const BASIC = `Basic ${Buffer.from("robot$ci:s3cret:with colon").toString("base64")}`;
const image = makeImage();
let standIn: StandIn;

beforeEach(async () => {
  standIn = await StandIn.start();
});
afterEach(async () => {
  await standIn[Symbol.asyncDispose]();
});

/** Serves the image for requests with one of these headers; others get the challenges. */
function guardedBy(allowed: string[] | (() => string[]), ...challenges: string[]): RequestListener {
  return (request, response) => {
    const now = typeof allowed === "function" ? allowed() : allowed;
    if (now.includes(request.headers.authorization ?? "")) return serveImage(image)(request, response);
    response.writeHead(401, { "www-authenticate": challenges }).end('{"errors":[{"code":"UNAUTHORIZED"}]}');
  };
}

function tokens(answer: object | string, status = 200, headers = {}): RequestListener {
  return (_, response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(typeof answer === "string" ? answer : JSON.stringify(answer));
  };
}

const bearer = (realm: string) =>
  `Bearer realm="${realm}",service="the service",scope="repository:other/one:pull,push"`;
const pullOnce = async (input: Partial<PullInput> = {}) => {
  await withDirectory((directory) => pull(standIn, directory, input));
};

/** Hosts that have seen an Authorization header, each with what it has seen. */
function seenCredentials(): Record<string, string[]> {
  const seen = standIn.requests.filter(({ authorization }) => authorization !== undefined);
  return Object.fromEntries(
    [...Map.groupBy(seen, ({ host }) => host)].map(([host, requests]) => [
      host,
      [...new Set(requests.map(({ authorization }) => authorization ?? ""))],
    ]),
  );
}

describe("a registry that wants a token", () => {
  test("gets the one of its token service, which alone sees the credential", async () => {
    standIn.serve(REGISTRY, guardedBy(["Bearer t0ken"], bearer(`https://${AUTH}/token?x=1`)));
    standIn.serve(AUTH, tokens({ token: "t0ken", expires_in: 300 }));
    await pullOnce({ credential: CREDENTIAL });
    expect(seenCredentials()).toEqual({ [AUTH]: [BASIC], [REGISTRY]: ["Bearer t0ken"] });
    const [asked, ...more] = standIn.requestsTo(AUTH);
    expect(more).toEqual([]);
    const url = new URL(asked?.path ?? "", "https://x");
    expect(Object.fromEntries(url.searchParams)).toEqual({
      x: "1",
      service: "the service",
      scope: `repository:${REPOSITORY}:pull`,
    });
  });

  test("gets an anonymous one without a credential", async () => {
    standIn.serve(REGISTRY, guardedBy(["Bearer anyone"], bearer(`https://${AUTH}/token`)));
    standIn.serve(AUTH, tokens({ access_token: "anyone" }));
    await pullOnce();
    expect(seenCredentials()).toEqual({ [REGISTRY]: ["Bearer anyone"] });
  });

  test("gets a new one when the first has expired, for all layers together", async () => {
    let issued = 0;
    let isExpired = false;
    const guarded = guardedBy(() => [`Bearer t${issued}`], bearer(`https://${AUTH}/token`));
    standIn.serve(REGISTRY, (request, response) => {
      // Once, before the layers.
      const isLayer = image.layers.some(({ digest }) => request.url?.endsWith(digest));
      if (isLayer && !isExpired) {
        isExpired = true;
        issued++;
      }
      guarded(request, response);
    });
    standIn.serve(AUTH, (request, response) => tokens({ token: `t${issued}` })(request, response));
    await pullOnce({ credential: CREDENTIAL });
    expect(standIn.requestsTo(AUTH)).toHaveLength(2);
  });

  test.each([
    ["without a credential", undefined, "none is stored for it"],
    ["with a wrong one", CREDENTIAL, "refuses the credential"],
  ])("whose token service says 401 fails distinctly, %s", async (_, credential, why) => {
    standIn.serve(REGISTRY, guardedBy([], bearer(`https://${AUTH}/token`)));
    standIn.serve(AUTH, tokens({ details: "incorrect username or password" }, 401));
    const error = await failureOfPull(standIn, { credential });
    expect(error).toMatchObject({ code: "authentication_failed", message: expect.stringContaining(why) });
    expect(error.message).not.toContain("s3cret");
  });

  test("that does not take the token fails distinctly, after two requests", async () => {
    standIn.serve(REGISTRY, guardedBy([], bearer(`https://${AUTH}/token`)));
    standIn.serve(AUTH, tokens({ token: "anyone" }));
    expect(await failureOfPull(standIn)).toMatchObject({
      code: "authentication_failed",
      message: expect.stringContaining("private or does not exist"),
    });
    expect(standIn.requestsTo(REGISTRY)).toHaveLength(2);
  });

  test.each([
    ["an empty answer", ""],
    ["no token", {}],
    ["a token with a line end", { token: "a\r\nx-injected: 1" }],
    ["a token that is a number", { token: 7 }],
    ["a token that is too long", { token: "a".repeat(70_000) }],
    ["a list", "[]"],
    ["a megabyte", `{"token":"a","x":"${"x".repeat(1_000_000)}"}`],
  ])("and whose token service sends %s has failed", async (_, answer) => {
    standIn.serve(REGISTRY, guardedBy([], bearer(`https://${AUTH}/token`)));
    standIn.serve(AUTH, tokens(answer));
    expect(await failureOfPull(standIn)).toMatchObject({ code: "registry_failed" });
  });

  test("and whose token service limits its requests says when to come back", async () => {
    standIn.serve(REGISTRY, guardedBy([], bearer(`https://${AUTH}/token`)));
    standIn.serve(AUTH, tokens({}, 429, { "retry-after": "17" }));
    expect(await failureOfPull(standIn)).toMatchObject({ code: "rate_limited", retryAfterMs: 17_000 });
    expect(standIn.requestsTo(AUTH)).toHaveLength(1);
  });
});

describe("a credential", () => {
  test("is sent as it is where the registry wants that", async () => {
    standIn.serve(REGISTRY, guardedBy([BASIC], 'Basic realm="Registry"'));
    await pullOnce({ credential: CREDENTIAL });
    expect(seenCredentials()).toEqual({ [REGISTRY]: [BASIC] });
    expect(standIn.requests[0]?.authorization).toBeUndefined();
  });

  test("of Google's registry is a JSON key", async () => {
    const key = JSON.stringify({ type: "service_account", private_key: "-----BEGIN\n…" });
    const credential = { registry: REGISTRY, username: "_json_key", password: key };
    standIn.serve(REGISTRY, guardedBy(["Bearer google"], bearer(`https://${REGISTRY}/v2/token`)));
    const guarded = guardedBy(["Bearer google"], bearer(`https://${REGISTRY}/v2/token`));
    standIn.serve(REGISTRY, (request, response) => {
      if (!request.url?.startsWith("/v2/token")) return guarded(request, response);
      const [, given = ""] = /^Basic (.+)$/.exec(request.headers.authorization ?? "") ?? [];
      const isRight = Buffer.from(given, "base64").toString() === `_json_key:${key}`;
      tokens(isRight ? { token: "google" } : {}, isRight ? 200 : 403)(request, response);
    });
    await pullOnce({ credential });
  });

  test("is not sent to a registry that does not ask", async () => {
    standIn.serve(REGISTRY, serveImage(image));
    await pullOnce({ credential: CREDENTIAL });
    expect(seenCredentials()).toEqual({});
  });

  test.each(["Basic", 'Negotiate, Basic realm="x"'])("is missed by its own error: %s", async (challenge) => {
    standIn.serve(REGISTRY, guardedBy([], challenge));
    expect(await failureOfPull(standIn)).toMatchObject({ code: "authentication_failed" });
  });

  test("that is wrong fails distinctly, and is sent once", async () => {
    standIn.serve(REGISTRY, guardedBy([], "Basic"));
    expect(await failureOfPull(standIn, { credential: CREDENTIAL })).toMatchObject({
      code: "authentication_failed",
    });
    expect(standIn.requests).toHaveLength(2);
  });

  test("of another registry is not taken", async () => {
    const credential = { ...CREDENTIAL, registry: "ghcr.io" };
    await expect(pullOnce({ credential })).rejects.toThrow("the credential is for ghcr.io");
    expect(standIn.dialled).toEqual([]);
  });

  test("cannot be asked for by a challenge of another kind", async () => {
    standIn.serve(REGISTRY, guardedBy([], 'Digest realm="x", nonce="y"'));
    expect(await failureOfPull(standIn, { credential: CREDENTIAL })).toMatchObject({
      code: "registry_failed",
    });
    expect(seenCredentials()).toEqual({});
  });
});

describe("a token service that is not the registry's own", () => {
  test.each([
    `https://${EVIL}/token`,
    `http://${AUTH}/token`,
    "http://169.254.169.254/latest/meta-data",
    "https://169.254.169.254/latest/meta-data",
    "https://localhost/token",
    `https://${REGISTRY}:x/token`,
    `https://${CREDENTIAL.username}@${AUTH}/token`,
  ])("gets no connection: %s", async (realm) => {
    standIn.serve(REGISTRY, guardedBy([], bearer(realm)));
    standIn.serve(EVIL, tokens({ token: "t" }));
    for (const credential of [CREDENTIAL, undefined]) {
      expect(await failureOfPull(standIn, { credential })).toMatchObject({ code: "realm_refused" });
    }
    expect(new Set(standIn.dialled)).toEqual(new Set([`${REGISTRY}:443`]));
    expect(seenCredentials()).toEqual({});
  });

  test("gets none by a redirect either", async () => {
    standIn.serve(REGISTRY, guardedBy([], bearer(`https://${AUTH}/token`)));
    standIn.serve(AUTH, tokens("", 307, { location: `https://${EVIL}/token` }));
    standIn.serve(EVIL, tokens({ token: "t" }));
    expect(await failureOfPull(standIn, { credential: CREDENTIAL })).toMatchObject({ code: "realm_refused" });
    expect(standIn.requestsTo(EVIL)).toEqual([]);
  });

  test("gets the credential if the caller says that it belongs to the registry", async () => {
    standIn.serve(REGISTRY, guardedBy(["Bearer t"], bearer(`https://${EVIL}/token`)));
    standIn.serve(EVIL, tokens({ token: "t" }));
    await pullOnce({ credential: CREDENTIAL, realmHosts: [EVIL] });
    expect(seenCredentials()).toEqual({ [EVIL]: [BASIC], [REGISTRY]: ["Bearer t"] });
  });
});

describe("a redirect", () => {
  const redirectBlobs = (to: (path: string) => string, guarded: RequestListener): RequestListener => {
    return (request, response) => {
      const isLayer = image.layers.some(({ digest }) => request.url?.endsWith(digest));
      if (!isLayer || request.headers.authorization !== BASIC) return guarded(request, response);
      response.writeHead(307, { location: to(request.url ?? "") }).end();
    };
  };
  const guarded = guardedBy([BASIC], "Basic");

  test("to another host carries no credential", async () => {
    standIn.serve(
      REGISTRY,
      redirectBlobs((path) => `https://${EVIL}${path}`, guarded),
    );
    standIn.serve(EVIL, serveImage(image));
    await pullOnce({ credential: CREDENTIAL });
    expect(standIn.requestsTo(EVIL)).toHaveLength(2);
    expect(seenCredentials()).toEqual({ [REGISTRY]: [BASIC] });
  });

  test("to another port of the registry carries none either", async () => {
    standIn.serve(
      REGISTRY,
      redirectBlobs((path) => `https://${REGISTRY}:8000${path}`, guarded),
    );
    expect(await failureOfPull(standIn, { credential: CREDENTIAL })).toMatchObject({
      code: "registry_failed",
    });
    const elsewhere =
      standIn.requests.length - standIn.requests.filter(({ authorization }) => authorization).length;
    expect(elsewhere).toBeGreaterThan(1);
  });

  test("that comes back brings none back", async () => {
    standIn.serve(
      REGISTRY,
      redirectBlobs((path) => `https://${EVIL}${path}`, guarded),
    );
    standIn.serve(EVIL, (request, response) => {
      response.writeHead(302, { location: `https://${REGISTRY}${request.url}` }).end();
    });
    expect(await failureOfPull(standIn, { credential: CREDENTIAL })).toMatchObject({
      code: "registry_failed",
    });
    expect(standIn.requestsTo(EVIL).every(({ authorization }) => authorization === undefined)).toBe(true);
  });

  test("within the registry keeps it", async () => {
    const seen: string[] = [];
    standIn.serve(REGISTRY, (request, response) => {
      const { pathname, searchParams } = new URL(request.url ?? "", "https://x");
      const isFirst = pathname.includes("/blobs/") && !searchParams.has("signed");
      if (isFirst && request.headers.authorization === BASIC)
        return void response.writeHead(302, { location: `${pathname}?signed=1` }).end();
      if (searchParams.has("signed")) seen.push(request.headers.authorization ?? "");
      request.url = pathname;
      guarded(request, response);
    });
    await pullOnce({ credential: CREDENTIAL });
    expect(seen).toEqual([BASIC, BASIC, BASIC]);
  });

  test.each([
    `http://${EVIL}/blob`,
    "http://169.254.169.254/latest/meta-data",
    "ftp://registry.example.com/blob",
    "file:///etc/passwd",
    "data:text/plain,x",
    `https://user:password@${EVIL}/blob`,
    "https://[/",
    `http://${REGISTRY}/blob`,
  ])("to %s is not followed", async (location) => {
    standIn.serve(
      REGISTRY,
      redirectBlobs(() => location, guarded),
    );
    expect(await failureOfPull(standIn, { credential: CREDENTIAL })).toMatchObject({
      code: "redirect_refused",
    });
    expect(new Set(standIn.dialled)).toEqual(new Set([`${REGISTRY}:443`]));
  });

  test("without a target is not followed", async () => {
    standIn.serve(REGISTRY, (_, response) => void response.writeHead(307).end());
    expect(await failureOfPull(standIn)).toMatchObject({ code: "redirect_refused" });
  });

  test("that leads in a circle ends", async () => {
    standIn.serve(REGISTRY, (request, response) => {
      response.writeHead(307, { location: `${request.url}x` }).end();
    });
    expect(await failureOfPull(standIn)).toMatchObject({ code: "redirect_refused" });
    expect(standIn.requests).toHaveLength(QUICK_LIMITS.redirects + 1);
  });
});

describe("a registry without TLS", () => {
  const reference = `localhost:8080/${REPOSITORY}:1`;

  test("is asked only if the caller says so", async () => {
    standIn.serve("http localhost", serveImage(image));
    expect(await failureOfPull(standIn, { reference })).toMatchObject({ code: "unreachable" });
    expect(standIn.requests).toEqual([]);
    await pullOnce({ reference, isInsecure: true });
  });

  test("may redirect to itself, and otherwise to HTTPS alone", async () => {
    standIn.serve("http other.example.com", serveImage(image));
    standIn.serve("http localhost", (request, response) => {
      const isRedirected = request.url?.includes("/blobs/") && !request.url.includes("?");
      if (isRedirected) return void response.writeHead(302, { location: `${request.url}?again` }).end();
      request.url = request.url?.replace("?again", "");
      serveImage(image)(request, response);
    });
    await pullOnce({ reference, isInsecure: true });
    standIn.serve("http localhost", (request, response) => {
      response.writeHead(302, { location: `http://other.example.com${request.url}` }).end();
    });
    expect(await failureOfPull(standIn, { reference, isInsecure: true })).toMatchObject({
      code: "redirect_refused",
    });
    expect(standIn.requestsTo("http other.example.com")).toEqual([]);
  });
});

describe("a ping", () => {
  const ping = (credential?: typeof CREDENTIAL) => {
    const { ca, dial } = standIn;
    return pingRegistry({ registry: REGISTRY, credential, ca, dial, limits: QUICK_LIMITS });
  };

  test("finds a registry, and that it takes the credential", async () => {
    standIn.serve(REGISTRY, guardedBy([BASIC], "Basic"));
    await ping(CREDENTIAL);
    await expect(ping()).rejects.toMatchObject({ code: "authentication_failed" });
  });

  test("asks a token service for no rights", async () => {
    standIn.serve(REGISTRY, guardedBy(["Bearer t"], bearer(`https://${AUTH}/token`)));
    standIn.serve(AUTH, tokens({ token: "t" }));
    await ping(CREDENTIAL);
    expect(standIn.requestsTo(AUTH)[0]?.path).not.toContain("scope");
  });

  test("finds that a host is not a registry", async () => {
    standIn.serve(REGISTRY, (_, response) => void response.writeHead(404).end("not here"));
    await expect(ping()).rejects.toMatchObject({ code: "not_found" });
  });
});
