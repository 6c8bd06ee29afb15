/** The first lease for the node's gateway, before the first sweep. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl({ sweeps: false });
});
afterAll(() => control.close());

const CONNECTION = {
  name: "api",
  origin: "https://api.example.com",
  authentication: { type: "bearer", secret: "sk-live" },
  allow: { methods: ["GET"], paths: ["/*"] },
};

test("a node without a lease gets one before a session with a Connection is live, and no further one", async () => {
  await control.createLive();
  expect(control.node.leases).toEqual([]);
  const id = await control.createLive({ connections: [CONNECTION] });
  expect(control.node.leases).toMatchObject([{ sessions: [{ session_id: id }] }]);
  const path = `/v1/sessions/${id}/connections`;
  const bound = await control.ask(`POST ${path}`, {
    body: { ...CONNECTION, name: "other", origin: "https://b.example.com" },
  });
  expect(bound.status, bound.text).toBe(201);
  expect(control.node.leases).toHaveLength(1);
});

test("a node that lost its lease has one again once a Connection is bound", async () => {
  const id = await control.createLive({ connections: [{ ...CONNECTION, name: "first" }] });
  control.node.leases.splice(0);
  const bound = await control.ask(`POST /v1/sessions/${id}/connections`, {
    body: { ...CONNECTION, origin: "https://b.example.com" },
  });
  expect(bound.status, bound.text).toBe(201);
  expect(
    control.node.leases.flatMap(({ sessions }) => sessions.map(({ session_id }) => session_id)),
  ).toContain(id);
});
