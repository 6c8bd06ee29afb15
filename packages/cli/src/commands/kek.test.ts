/** `viv kek`, `viv secret` and `viv create --secret`: what they ask the service, and what they print. */
import { writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { inOwnDirectories, respond, serve, viv } from "../../test-support/program.ts";

inOwnDirectories();

const id = "4x7k2m9q0a1b2c3d4e5f6";
const session = { session_id: id, state: "live", size: "small", created_at: "2027-01-01T10:00:00.000Z" };
const key = (id: string, count: number) => ({ id, is_loaded: true, data_keys: count });

test("kek rotate waits until nothing is sealed with an older key", async () => {
  let left = 2;
  const { url, seen } = await serve(({ method }, response) => {
    if (method === "GET") left--;
    respond(response, 200, { current: "kek_2", keys: [key("kek_1", left), key("kek_2", 5)], unsealed: 0 });
  });
  const { code, out, err } = await viv(url, ["kek", "rotate"], { VIV_OPERATOR_KEY: "viv_op_x" });
  expect(code).toBe(0);
  expect(out).toMatch(/kek_1 +opens +0 +can be removed\nkek_2 +seals +5/);
  expect(err).toBe(
    "viv: kek_2 seals from now on\nviv: 2 of them are still sealed with an older key\nviv: 1 of them are still sealed with an older key\n",
  );
  expect(seen[0]).toMatchObject({ method: "POST", url: "/v1/admin/keys/rotate" });
});

test("secret ls prints the names", async () => {
  const { url } = await serve((_request, response) =>
    respond(response, 200, { ...session, secret_names: ["A", "B"] }),
  );
  expect((await viv(url, ["secret", "ls", id])).out).toBe("A\nB\n");
});

test("create sends the values of secrets, and never takes one from its arguments", async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "viv-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const file = path.join(folder, "token");
  writeFileSync(file, "of a file\n");
  const { url, seen } = await serve((_request, response) => respond(response, 200, session));
  const made = await viv(url, ["create", "--secret", "FROM_ENV", "--secret", `TOKEN=@${file}`], {
    FROM_ENV: "of the environment",
  });
  expect(made.code).toBe(0);
  expect(seen.at(-1)?.body).toMatchObject({
    secrets: { FROM_ENV: "of the environment", TOKEN: "of a file" },
  });
  const refused = await viv(url, ["create", "--secret", "TOKEN=hunter2"]);
  expect(refused.code).toBe(2);
  expect(refused.err).toContain("a value on the command line can be seen by other users");
  expect(refused.err).not.toContain("hunter2");
});
