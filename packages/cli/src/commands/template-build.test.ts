/** `viv template build`: what it asks the service, what it prints, and that its session ends in every case. */
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { beforeEach, expect, test } from "vitest";
import {
  dir,
  inOwnDirectories,
  respond,
  S1,
  type Seen,
  serve,
  stream,
  viv,
} from "../../test-support/program.ts";

inOwnDirectories();

const at = "2027-01-01T10:00:00.000Z";
const image = `oci:${S1}/workspace/image`;
const queued = {
  ...{ name: "app", kind: "user", created_at: at, status: "queued", versions: [] },
  ...{ source_image: image, memory: false },
};
const ready = { ...queued, status: "ready", version: "1", versions: ["1"], size: "small" };
/** Exit code of the script that looks whether a path of the session is there. */
const NOTHING_THERE = 44;

let app: string;
beforeEach(async () => {
  app = path.join(dir, "app");
  await mkdir(app);
  await writeFile(path.join(app, "Dockerfile"), "FROM scratch\nCOPY hello /\n");
  await writeFile(path.join(app, "hello"), "hello");
});

const commandIn = ({ body }: Seen) => (body as { command?: string[] }).command ?? [];
const isBuild = (seen: Seen) => commandIn(seen)[2] === "buildah";
const isWrite = (seen: Seen) => commandIn(seen)[2]?.includes("buildah push") ?? false;

interface Outcome {
  create?: { status: number; body: object };
  buildExit?: number;
  writeExit?: number;
  onBuild?: () => void;
  ended?: object;
}

/** A service whose sessions have nothing at any path, and in which buildah ends as it is asked to. */
const service = ({ create, buildExit = 0, writeExit = 0, onBuild, ended = ready }: Outcome = {}) =>
  serve((seen, response) => {
    const { method, url = "", body } = seen;
    if (method === "DELETE") return respond(response, 200, { destroyed: true });
    if (url === "/v1/sessions")
      return respond(response, create?.status ?? 200, create?.body ?? { session_id: S1, state: "creating" });
    if (url.startsWith("/v1/templates")) return respond(response, 200, method === "POST" ? queued : ended);
    if (url.endsWith("/files/batch")) {
      const { files } = body as { files: { path: string }[] };
      return respond(response, 200, { results: files.map(({ path }) => ({ path, ok: true })) });
    }
    if (isBuild(seen)) {
      onBuild?.();
      return stream(response, "STEP 1/2: FROM scratch\n", { exit_code: buildExit });
    }
    if (isWrite(seen)) return stream(response, "", { exit_code: writeExit });
    const isScan = commandIn(seen)[2]?.includes("find ");
    stream(response, "", { exit_code: isScan ? NOTHING_THERE : 0 });
  });

const build = (url: string, ...more: string[]) =>
  viv(url, ["template", "build", app, "--name", "app", ...more]);
const deletedIn = (seen: Seen[]) =>
  seen.filter(({ method }) => method === "DELETE").map(({ url }) => url?.split("?")[0]);

test("build makes the image in a session with the caller's network, and a template of it", async () => {
  const { url, seen } = await service();
  const options = ["--build-arg", "A=b c", "--build-arg", "D=e=f", "--target", "last", "--size", "medium"];
  const { code, out, err } = await build(url, ...options, "--allow", "deb.debian.org");
  expect({ code, out, err }).toEqual({ code: 0, out: "app@1\n", err: "STEP 1/2: FROM scratch\n" });
  const asked = (part: (seen: Seen) => boolean) => seen.find(part)?.body;
  expect(asked(({ url }) => url === "/v1/sessions")).toMatchObject({
    ...{ template: "image-builder", size: "medium" },
    egress: { mode: "deny", allow: ["deb.debian.org"] },
  });
  expect(seen.filter(isBuild).map(commandIn)).toEqual([
    [
      ...["sudo", "-n", "buildah", "build", "--isolation", "chroot", "--format", "oci"],
      ...["--build-arg", "A=b c", "--build-arg", "D=e=f", "--target", "last"],
      ...["--tag", "localhost/built", "--file", "/workspace/context/Dockerfile", "/workspace/context"],
    ],
  ]);
  expect(asked(({ url }) => url?.endsWith("/files/batch") === true)).toEqual({
    files: expect.arrayContaining([
      expect.objectContaining({ path: "/workspace/context/Dockerfile" }),
      expect.objectContaining({ path: "/workspace/context/hello" }),
    ]),
  });
  expect(asked(({ url, method }) => url === "/v1/templates" && method === "POST")).toEqual({
    name: "app",
    from_layout: { session_id: S1, path: "image" },
  });
  expect(seen.at(-1)?.method).toBe("DELETE");
  expect(deletedIn(seen)).toEqual([`/v1/sessions/${S1}`]);
});

test("a build that fails ends with buildah's code, and without template and session", async () => {
  const { url, seen } = await service({ buildExit: 3 });
  const { code, out, err } = await build(url);
  expect({ code, out }).toEqual({ code: 3, out: "" });
  expect(err).toContain("STEP 1/2: FROM scratch\n");
  expect(err).toContain("viv: the build failed: buildah exited with 3\n");
  expect(seen.some(({ url }) => url?.startsWith("/v1/templates"))).toBe(false);
  expect(deletedIn(seen)).toEqual([`/v1/sessions/${S1}`]);
});

test.each<[string, Outcome, string]>([
  ["written", { writeExit: 1 }, "writing the image failed: buildah exited with 1"],
  [
    "imported",
    { ended: { ...queued, status: "failed", build_error: "image_too_large: the image has 200 layers" } },
    "the import of app failed: image_too_large: the image has 200 layers",
  ],
])("an image that cannot be %s is no template, and its session ends", async (_what, outcome, said) => {
  const { url, seen } = await service(outcome);
  const { code, out, err } = await build(url);
  expect({ code, out }).toEqual({ code: 1, out: "" });
  expect(err).toContain(said);
  expect(deletedIn(seen)).toEqual([`/v1/sessions/${S1}`]);
});

test("Ctrl-C ends the session too", async () => {
  const { url, seen } = await service({ onBuild: () => process.emit("SIGINT") });
  expect((await build(url)).code).toBe(130);
  expect(seen.some(isWrite)).toBe(false);
  expect(deletedIn(seen)).toEqual([`/v1/sessions/${S1}`]);
});

test("a service without the builder says what makes it", async () => {
  const body = { error: 'template: no template or version is called "image-builder"', code: "not_found" };
  const { url, seen } = await service({ create: { status: 404, body } });
  const { code, err } = await build(url);
  expect(code).toBe(1);
  expect(err).toContain("./setup --image-builder");
  expect(seen).toHaveLength(1);
});

test("a directory or Dockerfile that is not there is reported before anything is asked for", async () => {
  const { url, seen } = await service();
  const none = path.join(dir, "none");
  for (const [argv, said] of [
    [[none], `${none} is no directory`],
    [[dir], `${dir} has no Dockerfile or Containerfile`],
    [[app, "--file", none], `${none} is no file`],
  ] as const) {
    const { code, err } = await viv(url, ["template", "build", ...argv, "--name", "app"]);
    expect(code).toBe(2);
    expect(err).toContain(said);
  }
  expect(seen).toHaveLength(0);
});
