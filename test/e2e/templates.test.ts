import { afterAll, expect, test } from "vitest";
import { ask, client, sh, withSession } from "../support/http.ts";

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
  });
  const template = `base@${base?.version}`;
  await withSession(async (id) => expect(await out(id, "echo $((6 * 7))")).toBe("42"), { template });
  const unknown = await ask("/v1/sessions", { method: "POST", body: { template: "base@1999.01.01" } });
  expect([unknown.status, unknown.body.code]).toEqual([404, "not_found"]);
});

test("a session of a saved template goes on with its files and processes, under a name of its own", async () => {
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
