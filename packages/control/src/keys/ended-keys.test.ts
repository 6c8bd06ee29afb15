/** Keys that ended through another process while this one still has them in its cache: they make no credential. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, type Control, startControl } from "../../test-support/control.ts";
import { whileOrgIsLocked } from "../../test-support/locked-org.ts";

let control: Control;
let session: string;
beforeAll(async () => {
  // Without sweeps, which cut the open requests of a key that has ended.
  control = await startControl({ sweeps: false });
  session = await control.createLive();
});
afterAll(() => control.close());

const makeKey = (key?: string) =>
  control.ask("POST /v1/api-keys", { body: { name: "made" }, ...(key && { key }) });
const mintToken = (key: string) =>
  control.ask(`POST /v1/sessions/${session}/tokens`, { body: { ttl_seconds: 60 }, key });
let credentials = 0;
const storeCredential = (key: string) =>
  control.ask("POST /v1/registry-credentials", {
    body: {
      name: `credential-${++credentials}`,
      registry_host: "registry.example.com",
      username: "sam",
      secret: "canary",
    },
    key,
  });
const refusalOf = ({ status, body }: Answer) => [status, body.code, body.error];
const REFUSED = [401, "unauthenticated", "Authorization: the API key is unknown, revoked or expired"];

describe.each([
  ["a key", "api_keys", makeKey],
  ["a scoped token", "session_tokens", mintToken],
  ["a credential for a registry", "registry_credentials", storeCredential],
] as const)("%s", (_what, table, make) => {
  const count = async () => (await control.sql.query(`select from ${table}`)).rowCount ?? 0;

  test.each([
    ["revoked", "update api_keys set revoked_at = now() where id = $1"],
    ["expired", "update api_keys set expires_at = now() where id = $1"],
    ["deleted", "delete from api_keys where id = $1"],
  ])("is not made with a key that was %s by another process", async (_how, statement) => {
    const { id, key } = (await makeKey()).body;
    const before = await count();
    expect((await make(key)).status).toBe(201);
    expect(await count()).toBe(before + 1);
    await control.sql.query(statement, [id]);
    const left = await count();
    expect(refusalOf(await make(key))).toEqual(REFUSED);
    expect(await count()).toBe(left);
  });

  test.each([
    ["revoked", "update api_keys set revoked_at = now() where id = $1"],
    [
      "expired",
      "update api_keys set expires_at = clock_timestamp() - interval '1 millisecond' where id = $1",
    ],
  ])("is not made with a key that was %s while the request waited", async (_how, statement) => {
    const { id, key } = (await makeKey()).body;
    const before = await count();
    const answer = await whileOrgIsLocked(
      control,
      () => make(key),
      (sql) => sql.query(statement, [id]),
    );
    expect(refusalOf(answer)).toEqual(REFUSED);
    expect(await count()).toBe(before);
  });

  test("is made after a wait with a key that another process left alone", async () => {
    const [{ key }, other] = [(await makeKey()).body, (await makeKey()).body];
    const before = await count();
    const answer = await whileOrgIsLocked(
      control,
      () => make(key),
      (sql) => sql.query("update api_keys set revoked_at = now() where id = $1", [other.id]),
    );
    expect(answer.status).toBe(201);
    expect(await count()).toBe(before + 1);
  });
});
