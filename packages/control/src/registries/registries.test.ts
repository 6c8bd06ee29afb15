/** Credentials for registries: what a caller sees of them, and that nobody finds their secrets. */
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { LIMITS } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type Ask, type Control, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { createApp } from "../app.ts";
import { dumpRows } from "../db/dump-rows.ts";
import { Keyring } from "../secrets/keyring.ts";
import { openSecret } from "./seal.ts";

const CANARY = "canary-9b1c77-zq8v";
const PATH = "/v1/registry-credentials";
let control: Control;
let orgId: string;
beforeAll(async () => {
  control = await startControl();
  orgId = (await control.ask("GET /v1/org")).body.org_id;
});
afterEach(async () => {
  await control.sql.query("delete from registry_credentials");
});
afterAll(() => control.close());

const GIVEN = { name: "hub", registry_host: "docker.io", username: "robot$ci", secret: CANARY };
const create = (body: object = {}, ask: Ask = {}) =>
  control.ask(`POST ${PATH}`, { body: { ...GIVEN, ...body }, ...ask });
const list = async (key = control.key) => (await control.ask(`GET ${PATH}`, { key })).body.credentials;
const names = async (key = control.key) => (await list(key)).map(({ name }: { name: string }) => name);
const remove = (name: string, key = control.key) => control.ask(`DELETE ${PATH}/${name}`, { key });
const ring = async () => (await Keyring.load(control.settings.kekSource)).keyring;

async function addProject(): Promise<{ projectId: string; key: string }> {
  const projectId = `prj_${randomId()}`;
  await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, $1)", [projectId, orgId]);
  return { projectId, key: await control.addKey({ orgId, scopedProjectId: projectId }) };
}

describe("a credential", () => {
  test("is answered without its secret, of which the end is shown", async () => {
    const made = await create();
    expect([made.status, made.body]).toEqual([
      201,
      {
        id: expect.stringMatching(/^rcr_[a-z0-9]{21}$/),
        name: "hub",
        registry_host: "docker.io",
        username: "robot$ci",
        secret_last4: "zq8v",
        created_at: expect.stringMatching(/^\d{4}-.*Z$/),
        updated_at: made.body.created_at,
      },
    ]);
    const listed = await control.ask(`GET ${PATH}`);
    expect(listed.body).toEqual({ credentials: [made.body] });
    expect(made.text + listed.text).not.toContain(CANARY);
  });

  test("opens with the key-encryption key, to exactly what was given", async () => {
    const secret = '{\n  "type": "service_account",\n  "private_key": "-----BEGIN…\\n"\n}\n';
    expect((await create({ secret })).body).not.toHaveProperty("secret_last4");
    const { rows } = await control.sql.query("select * from registry_credentials");
    expect(await openSecret(await ring(), rows[0])).toBe(secret);
  });

  test.each([
    ["short-secre", undefined],
    ["long-enough!", "ugh!"],
    ["a secret that ends in a blank ", undefined],
    ["пароль-пароль", undefined],
  ])("with the secret %j shows %j", async (secret, last4) => {
    expect((await create({ secret })).body.secret_last4).toBe(last4);
  });

  test("is listed behind those that are newer", async () => {
    await create();
    await create({ name: "second" });
    await create({ name: "Third.of_them-3" });
    expect(await names()).toEqual(["Third.of_them-3", "second", "hub"]);
  });

  test("is not replaced by another one of its name", async () => {
    await create();
    const again = await create({ username: "other" });
    expect([again.status, again.body]).toEqual([
      409,
      {
        code: "conflict",
        error: 'name: another credential is called "hub"; delete it first, or choose another name',
      },
    ]);
    expect(await list()).toMatchObject([{ username: "robot$ci" }]);
  });

  test("has one owner when many ask for its name at once", async () => {
    const answers = await Promise.all(Array.from({ length: 8 }, () => create()));
    expect(answers.map(({ status }) => status).toSorted()).toEqual([201, ...Array(7).fill(409)]);
    expect(await list()).toHaveLength(1);
  });

  test("is gone once it was deleted, with its key, and a second time nothing happens", async () => {
    await create();
    await create({ name: "kept" });
    expect((await remove("hub")).status).toBe(204);
    expect(await names()).toEqual(["kept"]);
    expect((await remove("hub")).status).toBe(204);
    const { rowCount } = await control.sql.query("select from registry_credentials");
    expect(rowCount).toBe(1);
    expect((await create()).status).toBe(201);
  });

  test("is one of a hundred at most, of all projects together", async () => {
    const insert = `insert into registry_credentials (id, org_id, name, registry_host, username, kek_id, data_key, sealed)
      select 'rcr_' || lpad(n::text, 21, '0'), $1, 'n' || n, 'ghcr.io', 'u', 'kek_1', '', '' from generate_series(1, $2) n`;
    await control.sql.query(insert, [orgId, LIMITS.registryCredentialsPerOrg]);
    for (const key of [control.key, (await addProject()).key]) {
      const over = await create({}, { key });
      expect([over.status, over.body.error]).toEqual([
        409,
        "the organisation has 100 credentials for registries: delete one first",
      ]);
    }
    expect((await create({}, { key: await control.addKey() })).status).toBe(201);
  });
});

describe("the host of a registry", () => {
  test.each([
    ["GHCR.io", "ghcr.io"],
    ["ghcr.io:443", "ghcr.io"],
    ["index.docker.io", "docker.io"],
    ["registry-1.docker.io", "docker.io"],
    ["europe-west1-docker.pkg.dev", "europe-west1-docker.pkg.dev"],
    ["hub.example.com:5000", "hub.example.com:5000"],
  ])("%s is stored as %s", async (host, stored) => {
    expect((await create({ registry_host: host })).body.registry_host).toBe(stored);
  });

  test.each([
    "",
    "https://ghcr.io",
    "https://index.docker.io/v1/",
    "ghcr.io/owner",
    `me:${CANARY}@ghcr.io`,
    "ghcr.io.",
    "ghcr..io",
    "ghcr.io:0",
    "ghcr.io:65536",
    "ghcr.io:",
    "*.example.com",
    "a b.example.com",
    "ghcr.io\n",
    "ghcr.io|x",
    "bücher.example",
    "[::1]",
    "::1",
    "0x7f.1",
    "x".repeat(300),
  ])("is not %j", async (host) => {
    const refused = await create({ registry_host: host });
    expect([refused.status, refused.body.code]).toEqual([400, "validation"]);
    expect(refused.body.error).toMatch(/^registry_host: must be the host of a registry, host or host:port, /);
    expect(refused.text).not.toContain(CANARY);
    expect(await list()).toEqual([]);
  });

  test.each([
    "localhost:5000",
    "localhost",
    "registry",
    "registry.local",
    "registry.internal:5000",
    "10.1.2.3:5000",
    "127.0.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
  ])("is not %s, which is of no registry on the internet", async (host) => {
    const refused = await create({ registry_host: host });
    expect([refused.status, refused.body.error]).toEqual([
      400,
      "registry_host: must be a registry on the internet, not a private address or a name of this host",
    ]);
  });
});

describe("a body", () => {
  test.each<[string, object, RegExp]>([
    ["without a name", { name: undefined }, /^name: must be a string, got nothing$/],
    ["with an empty name", { name: "" }, /^name: must be 1 to 63 letters/],
    ["with a name that is a path", { name: "../hub" }, /^name: must be 1 to 63 letters/],
    ["with a name of 64 characters", { name: "a".repeat(64) }, /^name: must be 1 to 63 letters/],
    ["with a name that is no text", { name: 7 }, /^name: must be a string, got 7$/],
    ["without a user name", { username: undefined }, /^username: must be a string, got nothing$/],
    ["with an empty user name", { username: "" }, /^username: must be 1 to 256 characters long$/],
    ["with a colon in the user name", { username: `me:${CANARY}` }, /^username: must not contain a colon/],
    ["with a line end in the user name", { username: "me\r\nX: y" }, /^username: must not contain control/],
    ["with a long user name", { username: "m".repeat(257) }, /^username: must be 1 to 256 characters long$/],
    ["without a secret", { secret: undefined }, /^secret: must be a string, got nothing$/],
    ["with null as secret", { secret: null }, /^secret: must be a string$/],
    ["with an empty secret", { secret: "" }, /^secret: must not be empty$/],
    ["with an object as secret", { secret: { value: CANARY } }, /^secret: must be a string$/],
    ["with a secret that is too long", { secret: CANARY.repeat(500) }, /^secret: must be at most 8192 chara/],
    ["with NUL in the secret", { secret: `${CANARY}\0` }, /^secret: must not contain a NUL character$/],
    ["with half a character", { secret: `${CANARY}\ud800` }, /^secret: must be valid Unicode$/],
    ["with an unknown field", { password: CANARY }, /^password: unknown field; this object takes no others$/],
    ["with a project", { project_id: "prj_1" }, /^project_id: unknown field; this object takes no others$/],
  ])("%s is refused, and nothing of its secret repeated", async (_what, change, message) => {
    const refused = await create(change);
    expect([refused.status, refused.body.code]).toEqual([400, "validation"]);
    expect(refused.body.error).toMatch(message);
    expect(refused.text).not.toContain(CANARY);
    expect(await list()).toEqual([]);
  });

  test("takes the longest secret", async () => {
    expect((await create({ secret: "s".repeat(LIMITS.registrySecretChars) })).status).toBe(201);
  });
});

describe("a project", () => {
  test("has credentials of its own, with names of its own, which another project does not see", async () => {
    const [one, two] = [await addProject(), await addProject()];
    await create();
    const made = await create({ username: "one" }, { key: one.key });
    expect([made.status, made.body.project_id]).toEqual([201, one.projectId]);
    expect((await create({}, { key: one.key })).status).toBe(409);
    expect(await list(one.key)).toMatchObject([{ username: "one" }]);
    expect(await list(two.key)).toEqual([]);
    expect((await remove("hub", two.key)).status).toBe(204);
    expect(await list()).toMatchObject([{ project_id: one.projectId }, { username: "robot$ci" }]);
    expect((await remove("hub", one.key)).status).toBe(204);
    expect(await list()).toMatchObject([{ username: "robot$ci" }]);
  });

  test("loses its credentials to a key of the whole organisation, and when it is deleted", async () => {
    const { projectId, key } = await addProject();
    await create({}, { key });
    expect((await remove("hub")).status).toBe(204);
    expect(await list(key)).toEqual([]);
    await create({}, { key });
    await create({ name: "of-all" });
    expect((await control.ask(`DELETE /v1/projects/${projectId}`)).status).toBe(204);
    expect(await names()).toEqual(["of-all"]);
    const { entries } = (await control.ask("GET /v1/audit?action=registry_credential.delete&actor=system"))
      .body;
    expect(entries).toMatchObject([{ meta: { name: "hub", registry_host: "docker.io" } }]);
  });
});

describe("the secret of a credential", () => {
  const holds = (text: string, value: string) =>
    [value, Buffer.from(value).toString("hex"), Buffer.from(value).toString("base64")].some((form) =>
      text.includes(form),
    );
  const dump = async () => {
    const lines: string[] = [];
    await dumpRows(control.settings.databaseUrl, async (line) => void lines.push(line));
    return lines.join("\n");
  };

  test("is not in the database, in no part of it that shows, nor in the files of the service", async () => {
    await create();
    await create({ name: "refused", secret: `${CANARY}\0` });
    await create({ registry_host: `u:${CANARY}@ghcr.io` });
    const rows = await dump();
    expect(holds(rows, CANARY)).toBe(false);
    expect(holds(rows, CANARY.slice(-4))).toBe(false);
    expect(rows).toContain("robot$ci");
    const { controlDir } = control.settings;
    const files = readdirSync(controlDir, { recursive: true, withFileTypes: true }).filter((one) =>
      one.isFile(),
    );
    expect(files.length).toBeGreaterThan(0);
    for (const { parentPath, name } of files)
      expect(holds(readFileSync(path.join(parentPath, name), "latin1"), CANARY), name).toBe(false);
  });

  test.each([
    ["registry", "registry_host = 'evil.example.com'"],
    ["user name", "username = 'other'"],
    ["id", "id = 'rcr_aaaaaaaaaaaaaaaaaaaaa'"],
    ["key-encryption key", "kek_id = 'kek_2'"],
    ["content in one bit", "sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1)"],
  ])("does not open in a row whose %s was changed, which can be deleted all the same", async (_, change) => {
    await create();
    await control.sql.query(`update registry_credentials set ${change}`);
    const { rows } = await control.sql.query("select * from registry_credentials");
    await expect(openSecret(await ring(), rows[0])).rejects.toThrow(/cannot be opened|is not loaded/);
    const [listed] = await list();
    expect(listed.name).toBe("hub");
    expect(listed).not.toHaveProperty("secret_last4");
    expect((await remove("hub")).status).toBe(204);
    expect(await list()).toEqual([]);
  });

  test("does not open for another organisation", async () => {
    await create();
    const { rows } = await control.sql.query("select * from registry_credentials");
    await expect(openSecret(await ring(), { ...rows[0], org_id: "org_other" })).rejects.toThrow(
      /cannot be opened/,
    );
  });

  test("does not open in the place of another one of the same registry", async () => {
    await create();
    await create({ name: "second", secret: "another one" });
    await control.sql.query(
      "update registry_credentials a set sealed = b.sealed from registry_credentials b where a.name = 'hub' and b.name = 'second'",
    );
    const { rows } = await control.sql.query("select * from registry_credentials where name = 'hub'");
    await expect(openSecret(await ring(), rows[0])).rejects.toThrow(/cannot be opened/);
    expect((await list())[1]).not.toHaveProperty("secret_last4");
  });

  test("is refused without a key-encryption key, for good", async () => {
    const bare = await startControl({ kekSource: undefined });
    onTestFinished(() => bare.close());
    const refused = await bare.ask(`POST ${PATH}`, { body: GIVEN });
    expect([refused.status, refused.body.code, refused.headers["retry-after"]]).toEqual([
      503,
      "unavailable",
      undefined,
    ]);
    expect(refused.body.error).toBe("secret: this server has no encryption key configured, so it keeps none");
    expect((await bare.ask(`GET ${PATH}`)).body).toEqual({ credentials: [] });
  });

  test("lets no service start whose keys do not open it", async () => {
    await create();
    const text = `kek_1:${Buffer.alloc(32, "z").toString("base64url")}`;
    await expect(
      createApp({ ...control.settings, kekSource: { kind: "text", text } }, silentLog),
    ).rejects.toThrow(/kek_1 is not the one of this name/);
  });
});
