/**
 * Templates of Dockerfiles, from `viv template build` to a session, with a world of servers around. Needs the template
 * `image-builder`, which `./setup --image-builder` makes: a long test.
 */
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startViv, viv } from "../support/command-line.ts";
import { eventually } from "../support/eventually.ts";
import { putTools } from "../support/small-image.ts";
import { PUBLIC } from "../support/world/addresses.ts";
import { type Network, startNetwork } from "../support/world/network.ts";

const BUILD_MS = 900_000 * SLOWNESS;
/** The file that `ADD` fetches is readable for root alone, so a step of the build copies it. */
const DOCKERFILE = `FROM scratch AS base
COPY root/ /
ARG WORD=none
ENV GREETING=good-day WORD=$WORD
ADD http://files.example.com/ /srv/fetched
RUN cat /srv/fetched; cat /srv/fetched > /srv/read; echo "run as $(id -u)" > /srv/made
COPY . /all/
FROM base AS last
RUN ls /all > /srv/listed
FROM base AS unwanted
RUN sleep 1; not-a-program
`;

let network: Network;
let directory: string;

describe.runIf(process.env.VIV_TEST_FULL === "1")("viv template build", () => {
  beforeAll(async () => {
    network = await startNetwork();
    await network.world.say({ "*.example.com": { a: [PUBLIC.allowed] } });
    directory = await mkdtemp(join(tmpdir(), "context-"));
    await mkdir(join(directory, "root/srv"), { recursive: true });
    putTools(join(directory, "root"));
    await writeFile(join(directory, "Dockerfile"), DOCKERFILE);
    await writeFile(join(directory, ".dockerignore"), "ignored\n");
    for (const name of ["ignored", "taken"]) await writeFile(join(directory, name), name);
  });
  afterAll(async () => {
    await network?.close();
    if (directory) await rm(directory, { recursive: true, force: true });
  });

  const build = (...options: string[]) =>
    startViv("template", "build", directory, "--name", "app", "--target", "last", ...options);
  const sessions = async () => (await network.client.sessions.list()).sessions;

  test("builds with the caller's network, and a session of the template has what was built", {
    timeout: BUILD_MS,
  }, async () => {
    const building = build("--build-arg", "WORD=given", "--allow", "files.example.com");
    const { code, out, err } = await building.ended;
    expect({ code, out }, err).toEqual({ code: 0, out: "app@1\n" });
    expect(err).toContain("hello from files.example.com");
    expect(await sessions()).toEqual([]);
    const session = await viv("create", "--template", "app", "--wait");
    const sh = (script: string) => viv("exec", session, "--", "sh", "-c", script);
    expect(await sh('cat /srv/made /srv/read; echo "$GREETING $WORD"')).toBe(
      "run as 0\nhello from files.example.com\ngood-day given",
    );
    expect((await sh("cat /srv/listed")).split("\n")).toEqual(
      expect.arrayContaining(["Dockerfile", "root", "taken"]),
    );
    expect(await sh("cat /srv/listed")).not.toContain("ignored");
    await viv("rm", session);
  });

  test("fails where the policy keeps the build from what it adds, and leaves no session", {
    timeout: BUILD_MS,
  }, async () => {
    const { code, out, err } = await build("--allow", "other.example.com").ended;
    expect({ isOver: code === 0, out }, err).toEqual({ isOver: false, out: "" });
    expect(err).toMatch(/the build failed: buildah exited with \d+/);
    expect(await sessions()).toEqual([]);
    expect((await network.ask("/v1/templates/app")).body).toMatchObject({ status: "ready", versions: ["1"] });
  });

  test("that is interrupted ends its session", { timeout: BUILD_MS }, async () => {
    const building = build("--allow", "files.example.com");
    await eventually(async () => expect((await sessions())[0]?.state).toBe("live"), 300_000);
    building.kill("SIGINT");
    expect((await building.ended).code).toBe(130);
    expect(await sessions()).toEqual([]);
  });
});
