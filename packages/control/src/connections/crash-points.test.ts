/** Control is killed while it binds a Connection: the bind is finished or was refused, and the same request again completes it. */
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { killAt } from "../../test-support/mortal-control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

const connection = (name: string) => ({
  name,
  origin: `https://${name}.example.com`,
  authentication: { type: "bearer", secret: `canary-${name}` },
  allow: { methods: ["GET"], paths: ["/*"] },
});
const sent = (id: string) => control.node.connections.get(id)?.connections.map(({ name }) => name);
const auditOf = async (id: string) => {
  const { rows } = await control.sql.query(
    "select target from audit_log where session_id = $1 and action = 'connection.create'",
    [id],
  );
  return rows.map(({ target }) => target);
};

/** Makes the claim of a dead process lapse. */
const letBindLapse = (id: string) =>
  control.sql.query(
    "update connections set bind_claimed_until = bind_claimed_until - interval '1 minute' where session_id = $1",
    [id],
  );

test.each(["bind.commit", "bind.pushed", "bind.applied"])(
  "a bind whose process dies at %s is in force, with one audit entry, and is answered to the same request",
  async (point) => {
    const id = await control.createLive({ connections: [connection("first")] });
    // The credential is on the node only once its entry is written.
    let early: unknown;
    control.node.onConnections = async ({ connections }) => {
      const entries = await auditOf(id);
      const without = connections.filter(({ name }) => name === "second" && !entries.includes(name));
      if (without.length > 0) early = without;
    };
    await killAt(control, point, `POST /v1/sessions/${id}/connections`, connection("second"));
    await eventually(() => expect(sent(id)).toEqual(["first", "second"]));
    await letBindLapse(id);
    const again = await control.ask(`POST /v1/sessions/${id}/connections`, { body: connection("second") });
    expect([again.status, again.body.state], again.text).toEqual([201, "active"]);
    const spec = () => control.node.networks.get(`${id}-1`)?.bound_hosts;
    await eventually(() => expect(spec()).toEqual(["first.example.com", "second.example.com"]));
    expect(await auditOf(id)).toEqual(["second"]);
    const third = await control.ask(`POST /v1/sessions/${id}/connections`, { body: connection("second") });
    expect(third.body.code).toBe("conflict");
    control.node.onConnections = () => {};
    expect(early).toBeUndefined();
  },
);

test("a bind of a paused session whose process dies is in force at its next wake", async () => {
  const id = await control.createLive({ connections: [connection("first")] });
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await killAt(control, "bind.commit", `POST /v1/sessions/${id}/connections`, connection("second"));
  await control.ask(`POST /v1/sessions/${id}/resume`);
  expect(sent(id)).toEqual(["first", "second"]);
  await letBindLapse(id);
  const again = await control.ask(`POST /v1/sessions/${id}/connections`, { body: connection("second") });
  expect(again.status, again.text).toBe(201);
});
