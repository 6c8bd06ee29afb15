/** Imports of container images with `viv` from real registries, and sessions of what they become. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { askAt } from "../support/asking.ts";
import { startVivWith } from "../support/command-line.ts";
import { AHEAD, machineTraces } from "../support/machine-traces.ts";
import { type Registries, startRegistries } from "../support/registries.ts";
import { type Service, servicePid, startService } from "../support/service.ts";
import { makeSmallImage } from "../support/small-image.ts";

const IMPORT_MS = 400_000 * SLOWNESS;

let registries: Registries;
let service: Service;

beforeAll(async () => {
  const settings = {
    Env: ["PATH=/usr/bin:/bin", "GREETING=good day", "HOME=/root"],
    WorkingDir: "/srv",
    User: "nobody",
    Entrypoint: ["/usr/bin/cat"],
  };
  registries = await startRegistries({ "team/app": makeSmallImage("app", settings) });
  service = await startService({ env: registries.env });
});
afterAll(async () => {
  await service?.stop();
  await registries?.close();
});

function run(...argv: string[]) {
  const { url, apiKey } = service.facts;
  return startVivWith({ env: { VIV_URL: url, VIV_API_KEY: apiKey } }, ...argv).ended;
}

async function viv(...argv: string[]): Promise<string> {
  const { code, out, err } = await run(...argv);
  expect({ code, err }, argv.join(" ")).toEqual({ code: 0, err: expect.any(String) });
  return out.trim();
}

async function statusOf(name: string): Promise<unknown> {
  return (await askAt(service.facts, `/v1/templates/${name}`)).body.status;
}

async function untilStage(name: string, stage: string): Promise<void> {
  const now = async () => {
    const { progress } = (await askAt(service.facts, `/v1/templates/${name}`)).body;
    return (progress as { stage?: string } | undefined)?.stage;
  };
  await expect.poll(now, { interval: 200, timeout: IMPORT_MS }).toBe(stage);
}

test("an image is imported with progress, and a session of it runs, keeps files, sleeps and wakes", async () => {
  const image = `${registries.open}/team/app:1`;
  await viv("template", "import", "--name", "app", "--no-wait", image);
  const stages = new Set<unknown>();
  let template: Record<string, unknown> = {};
  await expect
    .poll(
      async () => {
        template = (await askAt(service.facts, "/v1/templates/app")).body;
        const { stage } = (template.progress ?? {}) as { stage?: string };
        stages.add(stage);
        return template.status;
      },
      { interval: 200, timeout: IMPORT_MS },
    )
    .toMatch(/^(ready|failed)$/);
  expect(template).toMatchObject({
    ...{ status: "ready", version: "1", size: "small" },
    source_image: expect.stringMatching(/^registry\.example\.com\/team\/app:?1?@sha256:[0-9a-f]{64}$/),
  });
  expect([...stages]).toEqual(expect.arrayContaining(["unpack", "bake"]));
  const log = await viv("template", "log", "app");
  expect(log).toMatch(/pull: .*unpack: .*hash: .*bake: .*ready/s);
  expect(log).toContain('its program is not started by itself: ["/usr/bin/cat"]');

  const session = await viv("create", "--template", "app", "--wait");
  const sh = (script: string) => viv("exec", session, "--", "sh", "-c", script);
  expect(await sh("cat /srv/hello; ls /srv; cat /etc/os-release")).toBe("hello from app\nhello\nID=small");
  expect(await sh('echo "$GREETING, $HOME, $PATH"; id -un; pwd')).toBe(
    "good day, /home/sandbox, /usr/bin:/bin\nsandbox\n/workspace",
  );
  const files = `/v1/sessions/${session}/files`;
  const note = { path: "/workspace/note", content: "kept" };
  expect((await askAt(service.facts, files, { method: "PUT", body: note })).status).toBe(200);
  expect((await askAt(service.facts, `${files}?path=/workspace/note`)).body).toMatchObject({
    content: "kept",
  });
  await viv("pause", session);
  expect(await sh("cat /workspace/note")).toBe("kept");
  await viv("rm", session);
});

test("a private image is imported with its registry's credential alone", async () => {
  const { closed, credential } = registries;
  const image = `${closed}/team/app:1`;
  const refused = await run("template", "import", "--name", "closed", image);
  expect(refused).toMatchObject({ code: 1, out: "", err: expect.stringContaining("registry_auth: ") });
  const login = await askAt(service.facts, "/v1/registry-credentials", {
    body: {
      name: "closed",
      registry_host: closed,
      username: credential.username,
      secret: credential.password,
    },
  });
  expect(login.status).toBe(201);
  // The import that failed had the first version.
  expect(await viv("template", "import", "--name", "closed", image)).toBe("closed@2");
  const log = await viv("template", "log", "closed");
  expect(log).not.toContain(credential.password);
  await viv("template", "rm", "closed");
});

test("a template that is deleted while it is built leaves nothing of its build", async () => {
  for (const stage of ["unpack", "bake"]) {
    await viv("template", "import", "--name", "gone", "--no-wait", `${registries.open}/team/app:1`);
    await untilStage("gone", stage);
    await viv("template", "rm", "gone");
  }
  await expect.poll(() => machineTraces(service.facts.dataDir).processes).toBe(0);
  // The first one stays.
  await expect.poll(() => readdirSync(join(service.facts.dataDir, "pool/b")).length).toBe(1);
});

test("an import whose daemon is killed in any stage begins again, and leaves nothing of the attempts", async () => {
  await viv("template", "import", "--name", "again", "--no-wait", `${registries.open}/team/app:1`);
  for (const stage of ["unpack", "bake"]) {
    await untilStage("again", stage);
    process.kill(servicePid(service.facts, "node"), "SIGKILL");
  }
  await expect.poll(() => statusOf("again"), { interval: 200, timeout: IMPORT_MS }).toBe("ready");
  await expect.poll(() => machineTraces(service.facts.dataDir).processes).toBe(0);
  expect(machineTraces(service.facts.dataDir).slots).toBeLessThanOrEqual(AHEAD);
  const folders = readdirSync(join(service.facts.dataDir, "pool/b"));
  const made = ["build.json", "log", "root.ext4", "small", "template.json"];
  for (const id of folders)
    expect(readdirSync(join(service.facts.dataDir, "pool/b", id)).toSorted()).toEqual(made);
  const log = await viv("template", "log", "again");
  expect(log.match(/the node's daemon restarted/g)).toHaveLength(2);
  await viv("template", "rm", "again");
});
