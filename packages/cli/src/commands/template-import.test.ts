/** `viv template import` and `viv template log`: what they ask the service, and what they print. */
import { expect, test } from "vitest";
import { inOwnDirectories, respond, serve, viv } from "../../test-support/program.ts";

inOwnDirectories();

const at = "2027-01-01T10:00:00.000Z";
const queued = {
  name: "rust",
  kind: "user",
  created_at: at,
  status: "queued",
  queue_position: 2,
  versions: [],
  source_image: "docker.io/library/rust:1.90",
  memory: false,
};
const { queue_position: _, ...rest } = queued;
const building = {
  ...rest,
  status: "building",
  progress: { stage: "pull", layers: { done: 1, total: 3 }, bytes: { done: 1024, total: 4096 } },
};
const ready = { ...rest, status: "ready", version: "1", versions: ["1"], size: "small" };
const failed = (build_error: string) => ({ ...rest, status: "failed", build_error });

/** Answers the import with the first state, and each look with the next one. */
const service = (...states: object[]) => {
  let at = 0;
  return serve(({ method }, response) =>
    respond(response, method === "POST" ? 202 : 200, states[Math.min(at++, states.length - 1)]),
  );
};
const IMPORT = ["template", "import", "--name", "rust", "rust:1.90"];

test("import waits until the template is ready, and prints its version in a pipe", async () => {
  const { url, seen } = await service(queued, ready);
  expect(await viv(url, [...IMPORT, "--description", "the compiler"])).toEqual({
    code: 0,
    out: "rust@1\n",
    err: "",
  });
  expect(seen.map(({ method, url: asked, body }) => [`${method} ${asked}`, body])).toEqual([
    ["POST /v1/templates", { name: "rust", from_image: "rust:1.90", description: "the compiler" }],
    ["GET /v1/templates/rust", ""],
  ]);
});

test("import shows a human its place and how far it is", async () => {
  const { url } = await service(queued, building, ready);
  const { out } = await viv(url, IMPORT, {}, { isInteractive: true });
  expect(out).toContain("waiting, place 2");
  expect(out).toContain("pulling the image, 1 of 3 layers, 1.0 KiB of 4.0 KiB");
  expect(out).toMatch(/name +rust\n/);
});

test("import --no-wait returns once the import is queued", async () => {
  const { url, seen } = await service({ ...queued, version: "4", versions: ["4"] });
  expect((await viv(url, [...IMPORT, "--no-wait"])).out).toBe("rust\n");
  expect(seen).toHaveLength(1);
});

test.each([
  ["registry_auth: the registry wants a credential", "viv registry login HOST --username NAME"],
  ["image_not_found: the registry has no such image", "viv template log rust"],
])("an import that fails with %j says so, and what to do", async (error, hint) => {
  const { url } = await service(queued, failed(error));
  const { code, out, err } = await viv(url, IMPORT);
  expect({ code, out }).toEqual({ code: 1, out: "" });
  expect(err).toContain(`viv: the import of rust failed: ${error}\n`);
  expect(err).toContain(hint);
});

test("an import that the service refuses is not waited for", async () => {
  const { url, seen } = await serve((_request, response) =>
    respond(response, 503, { error: "this server cannot make templates of images", code: "unavailable" }),
  );
  const { code, err } = await viv(url, IMPORT);
  expect(code).toBe(1);
  expect(err).toContain("this server cannot make templates of images");
  expect(new Set(seen.map(({ method }) => method))).toEqual(new Set(["POST"]));
});

test("log prints the lines with their times, and nothing that steers the terminal", async () => {
  const lines = [{ at, text: "pulling \u001b[2Jrust" }];
  const { url, seen } = await serve((_request, response) => respond(response, 200, { lines }));
  const { out } = await viv(url, ["template", "log", "rust@2"], {}, { isInteractive: true });
  expect(out).toBe(`${at}  pulling rust\n`);
  expect(seen[0]?.url).toBe("/v1/templates/rust%402/log");
  expect(JSON.parse((await viv(url, ["template", "log", "rust", "--json"])).out)).toEqual({ lines });
});
