/** Imports of images: what a caller sees of them from the queue to a session, and what ends them. */
import { LIMITS } from "@vivarium/contract/api";
import type { BuildStage } from "@vivarium/contract/node";
import { BuildFailed } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Ask, type Control, eventually, startControl } from "../../test-support/control.ts";

const IMAGE = "docker.io/library/debian:13";
const CANARY = "canary-of-a-pull-31f0";
let control: Control;
let orgId: string;
beforeAll(async () => {
  control = await startControl();
  orgId = (await control.ask("GET /v1/org")).body.org_id;
});
afterEach(async () => {
  control.node.onBuild = () => {};
  await offer({ builds: true });
  await control.destroyAll();
  for (const table of ["templates", "template_builds", "registry_credentials"])
    await control.sql.query(`delete from ${table}`);
  await eventually(() => expect(control.node.builds.size).toBe(0));
  await control.sql.query("delete from template_names");
  control.node.images.clear();
});
afterAll(() => control.close());

const importImage = (body: object = {}, ask: Ask = {}) =>
  control.ask("POST /v1/templates", { body: { name: "deb", from_image: "debian:13", ...body }, ...ask });
const read = async (name = "deb", key = control.key) =>
  (await control.ask(`GET /v1/templates/${name}`, { key })).body;
const until = (status: string, name = "deb") =>
  eventually(async () => {
    const template = await read(name);
    expect(template.status, JSON.stringify(template)).toBe(status);
    return template;
  }, 30_000);
const create = (body: object) => control.ask("POST /v1/sessions", { body });
const addImage = (reference = IMAGE, login?: { username: string; password: string }) =>
  control.node.images.set(reference, { layers: [1000, 24], ...(login && { login }) });

const offer = (change: Partial<Control["node"]["info"]>) => control.offer(change);

/** Stops builds at the beginning of a stage, until the result is called. */
function hold(at: BuildStage = "pull"): () => void {
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onBuild = (_id, stage) => (stage === at ? promise : undefined);
  return resolve;
}

/** The next attempts begin now, and not after their pause. */
const hurry = () => control.sql.query("update template_builds set not_before = null");

describe("an import", () => {
  test("is queued, builds with progress, and is a template then that sessions start from", async () => {
    addImage();
    const release = hold("unpack");
    const asked = await importImage({ description: "a system" });
    expect([asked.status, asked.body]).toEqual([
      202,
      {
        name: "deb",
        kind: "user",
        description: "a system",
        created_at: expect.stringMatching(/Z$/),
        status: "queued",
        queue_position: 1,
        versions: [],
        source_image: IMAGE,
        memory: false,
      },
    ]);
    await eventually(async () =>
      expect(await read()).toMatchObject({
        status: "building",
        progress: { stage: "unpack", layers: { done: 2, total: 2 }, bytes: { done: 1024, total: 1024 } },
      }),
    );
    expect(await read()).not.toHaveProperty("queue_position");
    expect((await control.ask("GET /v1/templates")).body.templates[1]).toEqual(await read());
    release();
    expect(await until("ready")).toEqual({
      name: "deb",
      kind: "user",
      description: "a system",
      created_at: expect.any(String),
      status: "ready",
      version: "1",
      versions: ["1"],
      size: "small",
      source_image: expect.stringMatching(/^docker\.io\/library\/debian:13@sha256:[0-9a-f]{64}$/),
      memory: false,
    });
    const [id] = [...control.node.builds.keys()];
    for (const [template, size] of [
      ["deb", undefined],
      ["deb@1", "medium"],
    ] as const) {
      const made = await create({ template, ...(size && { size }) });
      expect(made.body).toMatchObject({ template, size: size ?? "small" });
      await control.until(made.body.session_id, "live");
      expect(control.node.machines.get(`${made.body.session_id}-1`)?.spec).toMatchObject({
        template: id,
        size: size ?? "small",
      });
      expect(control.node.machines.get(`${made.body.session_id}-1`)?.spec).not.toHaveProperty("snapshot_id");
    }
  });

  test("has events from its queue to its deletion, and an entry of its caller", async () => {
    addImage();
    await importImage();
    await until("ready");
    await control.ask("DELETE /v1/templates/deb");
    const { events } = (
      await control.ask("GET /v1/events?types=template.*&limit=200", {
        headers: { accept: "application/json" },
      })
    ).body;
    const types = events.map(({ type, data }: { type: string; data: object }) => [type, data]);
    expect(types.slice(-4)).toEqual(
      ["queued", "building", "ready", "deleted"].map((word) => [
        `template.${word}`,
        { name: "deb", version: "1" },
      ]),
    );
    const { entries } = (await control.ask("GET /v1/audit?action=template.import")).body;
    expect(entries[0]).toMatchObject({ target: "deb", meta: { version: "1", image: IMAGE } });
  });

  test("has a log, also once it has ended and the node has forgotten it", async () => {
    addImage();
    const release = hold("hash");
    await importImage();
    await eventually(async () => {
      const { lines } = (await control.ask("GET /v1/templates/deb/log")).body;
      expect(lines.at(-1)).toEqual({ at: expect.stringMatching(/Z$/), text: "hash" });
    });
    release();
    await until("ready");
    control.node.builds.clear();
    const log = await control.ask("GET /v1/templates/deb@1/log");
    expect(log.body.lines.map(({ text }: { text: string }) => text)).toEqual([
      "pull",
      "unpack",
      "hash",
      "bake",
    ]);
    expect((await control.ask("GET /v1/templates/base/log")).body).toEqual({ lines: [] });
    for (const name of ["none", "deb@2", "..", "deb@"])
      expect((await control.ask(`GET /v1/templates/${name}/log`)).status).toBe(404);
  });

  test("under a name that exists is its next version, and the former one stays usable meanwhile", async () => {
    addImage();
    await importImage();
    await until("ready");
    const release = hold();
    await importImage({ description: "newer" });
    expect(await until("building")).toMatchObject({ version: "1", versions: ["1"] });
    await importImage({ name: "waits" });
    const metrics = await control.app.meter.registry.metrics();
    for (const state of ["queued", "building"])
      expect(metrics).toContain(`vivarium_template_builds{state="${state}"} 1\n`);
    await control.ask("DELETE /v1/templates/waits");
    expect((await create({ template: "deb" })).status).toBe(200);
    const early = await create({ template: "deb@2" });
    expect([early.status, early.body.code, early.body.error]).toEqual([
      409,
      "conflict",
      "template: version 2 of deb is not ready, but building",
    ]);
    release();
    expect(await until("ready")).toMatchObject({ version: "2", versions: ["2", "1"] });
    await control.ask("DELETE /v1/templates/deb@1");
    expect(await read()).toMatchObject({ versions: ["2"] });
    expect((await create({ template: "deb@1" })).status).toBe(404);
  });

  test("of a template without a ready version is no origin of a session", async () => {
    const release = hold();
    await importImage();
    for (const template of ["deb", "deb@1"]) expect((await create({ template })).status).toBe(409);
    expect((await create({ template: "deb@2" })).status).toBe(404);
    release();
    await until("failed");
    const refused = await create({ template: "deb" });
    expect([refused.status, refused.body.error]).toEqual([
      409,
      `template: version 1 of deb is not ready, but failed: image_not_found: the registry has no image ${IMAGE}`,
    ]);
  });

  test("has the sizes in which base can be started, and others are available on no node", async () => {
    addImage();
    await offer({ baselines: ["large", "medium"].map((size) => ({ template: "base", size })) });
    await importImage();
    expect(await until("ready")).toMatchObject({ size: "medium" });
    expect((await create({ template: "deb" })).body.size).toBe("large");
    const small = await create({ template: "deb", size: "small" });
    expect([small.status, small.body.code]).toEqual([503, "size_unavailable"]);
    await offer({ baselines: ["small", "medium", "large"].map((size) => ({ template: "base", size })) });
  });

  test("that the node has lost is not replaced by another, and the create may be retried", async () => {
    addImage();
    await importImage();
    await until("ready");
    control.node.builds.clear();
    const lost = await create({ template: "deb@1" });
    expect([lost.status, lost.body.code, lost.headers["retry-after"]]).toEqual([
      503,
      "template_version_unavailable",
      "5",
    ]);
  });

  test("can be saved again from one of its sessions, and checkpointed", async () => {
    addImage();
    await importImage();
    await until("ready");
    const [id] = [...control.node.builds.keys()];
    const session = await control.createLive({ template: "deb" });
    const saved = await control.ask(`POST /v1/sessions/${session}/templates`, { body: { name: "deb" } });
    expect(saved.body).toMatchObject({ version: "2", versions: ["2", "1"], memory: true });
    const next = await control.createLive({ template: "deb" });
    expect(control.node.machines.get(`${next}-1`)?.spec).toMatchObject({
      template: id,
      snapshot_id: expect.stringMatching(/^tpl_/),
    });
    await control.ask("DELETE /v1/templates/deb");
    expect((await control.ask("GET /v1/templates/deb")).status).toBe(404);
  });
});

describe("an import is refused", () => {
  test("by a server that cannot make templates, without anything left of it", async () => {
    await offer({ builds: undefined });
    const refused = await importImage();
    expect([refused.status, refused.body, refused.headers["retry-after"]]).toEqual([
      503,
      { code: "unavailable", error: "this server cannot make templates of images" },
      undefined,
    ]);
    expect((await control.ask("GET /v1/templates/deb")).status).toBe(404);
    await offer({ builds: true });
    hold();
    expect((await importImage()).status).toBe(202);
    expect((await read("deb@1")).status).toMatch(/^(queued|building)$/);
  });

  test.each([
    ["", "has no path"],
    ["https://ghcr.io/owner/app", "has a scheme"],
    [`me:${CANARY}@ghcr.io/app`, "has a user"],
    ["Debian", "has capital letters"],
    ["debian@latest", "has no digest"],
    ["debian:..", "has a malformed tag"],
    ["10.1.2.3:5000/app", "of a registry on the internet"],
    ["127.0.0.1/app", "of a registry on the internet"],
    ["localhost:5000/app", "of a registry on the internet"],
    ["registry.internal/app", "of a registry on the internet"],
    ["169.254.169.254/latest", "of a registry on the internet"],
    ["a".repeat(1025), "must be at most 1024 characters long"],
  ])("for the image %.40j", async (image, why) => {
    const refused = await importImage({ from_image: image });
    expect([refused.status, refused.body.code]).toEqual([400, "validation"]);
    expect(refused.body.error).toMatch(/^from_image: /);
    expect(refused.body.error).toContain(why);
    expect(refused.text).not.toContain(CANARY);
  });

  test.each([
    ["without a name", { name: undefined }, 400, "validation"],
    ["without an image", { from_image: undefined }, 400, "validation"],
    ["with a name that is none", { name: "Deb" }, 400, "validation"],
    ["with a long description", { description: "d".repeat(513) }, 400, "validation"],
    ["with the name base", { name: "base" }, 403, "forbidden"],
  ])("%s", async (_what, body, status, code) => {
    const refused = await importImage(body);
    expect([refused.status, refused.body.code]).toEqual([status, code]);
  });

  test("while another one of its name is not over, and not afterwards", async () => {
    const release = hold();
    await importImage();
    const again = await importImage();
    expect([again.status, again.body.code]).toEqual([409, "conflict"]);
    expect((await importImage({ name: "other" })).status).toBe(202);
    expect((await importImage({}, { key: await control.addKey() })).status).toBe(202);
    release();
    await until("failed");
    expect((await importImage()).status).toBe(202);
    expect((await control.ask("GET /v1/templates/deb@1")).status).toBe(404);
  });

  test("over the caps of the organisation and of the node, exactly", async () => {
    hold();
    const many = await Promise.all(
      Array.from({ length: LIMITS.templateBuildsPerOrg + 3 }, (_, n) => importImage({ name: `d${n}` })),
    );
    expect(many.map(({ status }) => status).toSorted()).toEqual([202, 202, 202, 202, 202, 429, 429, 429]);
    const over = await importImage({ name: "over" });
    expect([over.status, over.body.code, over.headers["retry-after"]]).toEqual([429, "rate_limited", "30"]);
    for (const _ of [1, 2, 3]) {
      const key = await control.addKey();
      for (let n = 0; n < 5; n++) expect((await importImage({ name: `d${n}` }, { key })).status).toBe(202);
    }
    const last = await importImage({}, { key: await control.addKey() });
    expect([last.status, last.body.code, last.body.error]).toEqual([
      429,
      "rate_limited",
      "too many imports are queued on this server; try again later",
    ]);
    // A deleted one makes way.
    await control.ask(`DELETE /v1/templates/${many.find(({ status }) => status === 202)?.body.name}`);
    expect((await importImage({ name: "over" })).status).toBe(202);
  });
});

describe("the queue", () => {
  test("is fair: one of each organisation before the second of any", async () => {
    const first = Promise.withResolvers<void>();
    let builds = 0;
    control.node.onBuild = (_id, stage) => {
      if (stage === "pull") return builds++ === 0 ? first.promise : new Promise<void>(() => {});
    };
    const other = await control.addKey();
    await importImage({ name: "first" });
    await until("building", "first");
    for (const name of ["second", "third"]) expect((await importImage({ name })).status).toBe(202);
    for (const name of ["theirs", "theirs-too"])
      expect((await importImage({ name }, { key: other })).status).toBe(202);
    const places = async (names: string[], key?: string) =>
      await Promise.all(names.map(async (name) => (await read(name, key)).queue_position));
    expect(await places(["theirs", "theirs-too"], other)).toEqual([1, 2]);
    expect(await places(["first", "second", "third"])).toEqual([undefined, 3, 4]);
    first.resolve();
    await until("failed", "first");
    await eventually(async () => expect((await read("theirs", other)).status).toBe("building"));
    expect(await places(["second", "third"])).toEqual([1, 2]);
    expect(await places(["theirs-too"], other)).toEqual([3]);
  });

  test("has one build at a time on the node", async () => {
    addImage();
    let most = 0;
    control.node.onBuild = () => {
      const states = [...control.node.builds.values()].map(({ status }) => status.state);
      most = Math.max(most, states.filter((state) => state === "building" || state === "queued").length);
    };
    for (const name of ["a", "b", "c"]) await importImage({ name });
    for (const name of ["a", "b", "c"]) await until("ready", name);
    expect(most).toBe(1);
  });
});

describe("the registry gets", () => {
  const login = { username: "u", password: CANARY };
  const credential = { name: "ghcr", registry_host: "GHCR.io:443", username: "u", secret: CANARY };
  const PRIVATE = { from_image: "ghcr.io/owner/app:2" };
  const store = (body: object = {}, ask: Ask = {}) =>
    control.ask("POST /v1/registry-credentials", { body: { ...credential, ...body }, ...ask });
  const credentialOf = () => [...control.node.builds.values()].map((build) => build.credential);

  test("no credential, and the failure says so, until one is stored for it", async () => {
    addImage("ghcr.io/owner/app:2", login);
    await store({ name: "elsewhere", registry_host: "docker.io" });
    await importImage(PRIVATE);
    expect((await until("failed")).build_error).toMatch(/^registry_auth: /);
    await store();
    await importImage(PRIVATE);
    await until("ready");
    expect(credentialOf()).toEqual([{ registry: "ghcr.io", ...login }]);
    const answers = await Promise.all(
      ["templates/deb", "templates/deb/log", "events", "audit"].map((path) =>
        control.ask(`GET /v1/${path}`, { headers: { accept: "application/json" } }),
      ),
    );
    for (const { text } of answers) expect(text).not.toContain(CANARY);
    const { rows } = await control.sql.query("select b::text from template_builds b");
    expect(JSON.stringify(rows)).not.toContain(CANARY);
  });

  test("the newest credential of several", async () => {
    addImage("ghcr.io/owner/app:2", login);
    await store({ name: "old", secret: "outdated" });
    await store();
    await importImage(PRIVATE);
    await until("ready");
  });

  test("that of the key's own project alone, and a key of the organisation that of none", async () => {
    addImage("ghcr.io/owner/app:2", login);
    const projectId = `prj_${randomId()}`;
    await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, $1)", [
      projectId,
      orgId,
    ]);
    const key = await control.addKey({ orgId, scopedProjectId: projectId });
    const overAs = (name: string, as: string) =>
      eventually(async () => {
        const template = await read(name, as);
        expect(template.status).toMatch(/^(ready|failed)$/);
        return template;
      }, 30_000);
    await store();
    await importImage({ ...PRIVATE, name: "bound" }, { key });
    expect((await overAs("bound", key)).build_error).toMatch(/^registry_auth: /);
    await control.sql.query("delete from registry_credentials");
    await store({}, { key });
    await importImage({ ...PRIVATE, name: "whole" });
    expect((await overAs("whole", control.key)).build_error).toMatch(/^registry_auth: /);
    await importImage({ ...PRIVATE, name: "again" }, { key });
    expect((await overAs("again", key)).status).toBe("ready");
  });

  test("nothing of a credential that somebody moved to it, and the build fails", async () => {
    addImage("ghcr.io/owner/app:2", login);
    await store({ registry_host: "docker.io" });
    await control.sql.query("update registry_credentials set registry_host = 'ghcr.io'");
    await importImage(PRIVATE);
    expect((await until("failed")).build_error).toBe(
      "internal: the credential for the registry cannot be opened",
    );
    expect(control.node.builds.size).toBe(0);
  });
});

describe("a build that", () => {
  test("fails for a fault that passes begins again, three times at most", async () => {
    addImage();
    let begun = 0;
    control.node.onBuild = (_id, stage) => {
      if (stage === "pull") begun++;
      throw new BuildFailed({ word: "internal", message: "no connection", is_transient: true });
    };
    await importImage();
    await eventually(async () => {
      await hurry();
      expect((await read()).status).toBe("failed");
    }, 30_000);
    expect(begun).toBe(3);
    expect((await read()).build_error).toBe("internal: no connection");
  });

  test("meets a limit of the registry waits as long as that asks for, and uses up no attempt", async () => {
    addImage();
    let refusals = 0;
    control.node.onBuild = (_id, stage) => {
      if (stage !== "pull" || refusals++ >= 4) return;
      throw new BuildFailed({ word: "rate_limited", is_transient: true, retry_after_ms: 600_000 });
    };
    await importImage();
    await eventually(async () => {
      const { rows } = await control.sql.query(
        "select not_before > now() + interval '500 seconds' as waits, attempts from template_builds",
      );
      expect(rows).toEqual([{ waits: true, attempts: 0 }]);
    });
    expect(await read()).toMatchObject({ status: "queued", queue_position: 1 });
    await eventually(async () => {
      await hurry();
      expect((await read()).status).toBe("ready");
    }, 30_000);
  });

  test("has met a limit of its registry for a day gives its place in the queue back", async () => {
    addImage();
    const limited = new BuildFailed({
      word: "rate_limited",
      message: "too many requests",
      is_transient: true,
    });
    control.node.onBuild = () => {
      throw limited;
    };
    await importImage();
    await eventually(async () => {
      const { rows } = await control.sql.query("select not_before is not null as waits from template_builds");
      expect(rows).toEqual([{ waits: true }]);
    });
    await control.sql.query("update template_builds set created_at = now() - interval '25 hours'");
    await eventually(async () => {
      await hurry();
      expect(await read()).toMatchObject({ status: "failed", build_error: "internal: too many requests" });
    }, 30_000);
  });

  test("waits for its registry lets others pass", async () => {
    addImage();
    addImage("docker.io/library/alpine:3");
    const limited = new BuildFailed({ word: "rate_limited", is_transient: true, retry_after_ms: 600_000 });
    control.node.onBuild = (id) => {
      if (control.node.builds.get(id)?.spec.reference === IMAGE) throw limited;
    };
    await importImage({ name: "first" });
    await importImage({ name: "second", from_image: "alpine:3" });
    await until("ready", "second");
    expect(await read("first")).toMatchObject({ status: "queued", queue_position: 1 });
  });

  test.each([
    ["image_invalid", "image_invalid: it is broken"],
    ["image_too_large", "image_too_large: it is broken"],
    ["build_timeout", "build_timeout: it is broken"],
    ["interrupted", "internal: it is broken"],
  ] as const)("fails for good with %s says %j, and is deleted on the node", async (word, error) => {
    control.node.onBuild = () => {
      throw new BuildFailed({ word, message: "it is\nbroken", is_transient: false });
    };
    await importImage();
    expect((await until("failed")).build_error).toBe(error);
    await eventually(() => expect(control.node.builds.size).toBe(0));
    expect((await control.ask("GET /v1/templates/deb/log")).body.lines.length).toBeGreaterThan(0);
  });

  test("is deleted ends on the node, whatever it is doing, and the next one begins", async () => {
    addImage();
    hold();
    await importImage();
    await until("building");
    const [deleted = ""] = await eventually(() => {
      expect(control.node.builds.size).toBe(1);
      return [...control.node.builds.keys()];
    });
    await importImage({ name: "next" });
    expect((await control.ask("DELETE /v1/templates/deb")).status).toBe(204);
    expect((await control.ask("GET /v1/templates/deb")).status).toBe(404);
    await until("building", "next");
    // The row is there before the node has heard of it.
    await eventually(() =>
      expect([...control.node.builds.keys()]).toEqual([expect.not.stringMatching(deleted)]),
    );
    expect((await control.ask("DELETE /v1/templates/next@1")).status).toBe(204);
    expect((await control.ask("DELETE /v1/templates/next")).status).toBe(404);
  });

  test("is a template that is deleted stays for the sessions that are starting from it", async () => {
    addImage();
    await importImage();
    await until("ready");
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onStart = () => promise;
    const id = await control.create({ template: "deb" });
    expect((await control.ask("DELETE /v1/templates/deb")).status).toBe(204);
    expect((await create({ template: "deb" })).status).toBe(404);
    resolve();
    await control.until(id, "live");
    control.node.onStart = () => {};
    await eventually(() => expect(control.node.builds.size).toBe(0));
  });

  test("lost its node for a while is taken up again", async () => {
    addImage();
    const release = hold("bake");
    await importImage();
    // The row says "building" before the node has the build.
    await eventually(() => {
      const [build] = control.node.builds.values();
      expect(build?.status.stage).toBe("bake");
    });
    await control.node.restart();
    release();
    await eventually(async () => {
      await hurry();
      expect((await read()).status).toBe("ready");
    }, 60_000);
    const { rows } = await control.sql.query("select attempts from template_builds");
    expect(rows).toEqual([{ attempts: 2 }]);
  });

  test.each(["keeps what it knows", "has forgotten the build, as another node would"])(
    "begins again pulls what its tag meant the first time, from a node that %s",
    async (which) => {
      control.node.images.set(IMAGE, { layers: [10], content: "first" });
      const release = hold("bake");
      await importImage();
      const first = await eventually(async () => {
        const { status, source_image: image } = await read();
        expect([status, image]).toEqual(["building", expect.stringContaining("@sha256:")]);
        return image;
      });
      control.node.images.set(IMAGE, { layers: [10], content: "moved" });
      control.node.images.set(first, { layers: [10], content: "first" });
      await control.node.restart();
      if (which.includes("another")) control.node.builds.clear();
      release();
      await eventually(async () => {
        await hurry();
        expect(await read()).toMatchObject({ status: "ready", source_image: first });
      }, 60_000);
      // The next import of the same tag is another build.
      await importImage();
      const next = await eventually(async () => {
        const template = await read();
        expect(template).toMatchObject({ status: "ready", version: "2" });
        return template;
      }, 30_000);
      expect(next.source_image).toMatch(/^docker\.io\/library\/debian:13@sha256:/);
      expect(next.source_image).not.toBe(first);
    },
  );

  test("fails says which image it was, once that was known", async () => {
    addImage();
    control.node.onBuild = (_id, stage) => {
      if (stage === "unpack") throw new BuildFailed({ word: "image_invalid", is_transient: false });
    };
    await importImage();
    expect((await until("failed")).source_image).toMatch(/^docker\.io\/library\/debian:13@sha256:/);
  });

  test("no row knows is deleted on the node", async () => {
    const id = `tpl_${randomId()}`;
    control.node.builds.set(id, {
      spec: { reference: IMAGE, sizes: ["small"] },
      ...{ credential: undefined, image: undefined },
      status: { build_id: id, state: "ready", sizes: ["small"] },
      log: [],
      over: new AbortController(),
      work: Promise.resolve(),
    });
    await eventually(() => expect(control.node.builds.has(id)).toBe(false));
  });
});
