import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { flipBit, truncateFile } from "../support/damage.ts";
import { eventually } from "../support/eventually.ts";
import { ask, client, service, sh, withSession } from "../support/http.ts";

const NAME = `e2e-${Date.now()}`;
afterAll(() => client.templates.delete(NAME).catch(() => undefined));

const out = async (id: string, script: string) =>
  (await client.sessions.exec(id, { command: sh(script) })).stdout.trim();

test("the official template names its version, and can be started in it and in no other", async () => {
  const { templates } = await client.templates.list();
  const base = templates.find(({ name }) => name === "base");
  expect(base).toMatchObject({
    kind: "official",
    status: "ready",
    memory: true,
    created_at: expect.stringMatching(/^\d{4}-/),
    version: expect.stringMatching(/./),
    built_at: expect.stringMatching(/^\d{4}-/),
    content_hash: expect.stringMatching(/^sha256:[0-9a-f]{64}$/),
  });
  const template = `base@${base?.version}`;
  await withSession(async (id) => expect(await out(id, "echo $((6 * 7))")).toBe("42"), { template });
  const unknown = await ask("/v1/sessions", { method: "POST", body: { template: "base@1999.01.01" } });
  expect([unknown.status, unknown.body.code]).toEqual([404, "not_found"]);
});

test("a session of a saved template continues with its files and processes, under a name of its own", async () => {
  await withSession(async (id) => {
    await out(id, "echo kept > /workspace/file; (sleep 1000 &) ; sync");
    await client.templates.save(id, { name: NAME, description: "files and a sleeper" });
    await out(id, "echo later > /workspace/file");
  });
  const made = await Promise.all(
    [1, 2].map(() =>
      withSession(
        async (id) => [
          id,
          await out(id, "cat /workspace/file"),
          await out(id, "pgrep -c -x sleep"),
          await out(id, "hostname"),
          await out(id, "cat /etc/machine-id"),
        ],
        { template: `${NAME}@1` },
      ),
    ),
  );
  for (const [id, file, sleepers, hostname] of made) {
    expect([file, sleepers, hostname]).toEqual(["kept", "1", id]);
  }
  expect(made[0]?.[4]).not.toBe(made[1]?.[4]);
});

test("sessions of a template outlive it", async () => {
  await withSession(
    async (id) => {
      await client.sessions.exec(id, { command: ["true"] });
      await client.templates.delete(NAME);
      expect(await out(id, "cat /workspace/file")).toBe("kept");
      const gone = await ask("/v1/sessions", { method: "POST", body: { template: NAME } });
      expect(gone.status).toBe(404);
    },
    { template: NAME },
  );
});

test("a version that is damaged is refused, once it is known; the others are what they were", async () => {
  const folder = join(service.dataDir, "pool/s");
  const saved = () => readdirSync(folder).filter((name) => name.startsWith("tpl_"));
  const dirs: string[] = [];
  await withSession(async (id) => {
    for (let version = 0; version < 3; version++) {
      const before = saved();
      await client.templates.save(id, { name: NAME });
      dirs.push(...saved().filter((name) => !before.includes(name)));
    }
  });
  const [whole = "", short = "", flipped = ""] = dirs.map((name) => join(folder, name));
  const { versions } = await client.templates.get(NAME);
  const [newest = "", middle = "", oldest = ""] = versions;
  const refused = async (version: string) => {
    const { status, body } = await ask("/v1/sessions", {
      method: "POST",
      body: { template: `${NAME}@${version}` },
    });
    expect([status, body.code]).toEqual([503, "template_version_unavailable"]);
  };
  await truncateFile(short, "disk.qcow2");
  await refused(middle);
  await flipBit(flipped, "state", statSync(join(flipped, "state")).size >> 1, true);
  const { session_id: id } = await client.sessions.create({ template: `${NAME}@${newest}` });
  await eventually(async () => {
    const { state, status_reason: reason } = await client.sessions.get(id);
    expect([state, reason]).toEqual(["failed", "the saved state that the session starts from is damaged"]);
  });
  await client.sessions.delete(id);
  await refused(newest);
  await eventually(async () => {
    expect(await client.templates.get(NAME)).toMatchObject({ status: "failed", versions: [oldest] });
  });
  expect(statSync(whole).isDirectory()).toBe(true);
  await withSession(async (other) => expect(await out(other, "echo well")).toBe("well"), {
    template: `${NAME}@${oldest}`,
  });
  await client.templates.delete(NAME);
  expect(dirs.filter((name) => saved().includes(name))).toEqual([]);
});
