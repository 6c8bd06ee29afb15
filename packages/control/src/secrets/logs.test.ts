/**
 * No log line has a secret, whatever fails while one is in hand. The lines are those that the service would write, at its
 * lowest level, with all fields and errors.
 */
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { holds } from "../../test-support/forms-of.ts";
import { keptLog } from "../../test-support/kept-log.ts";

const CANARY = "canary-e41b70aa";
const { log, lines } = keptLog();
let control: Control;
beforeAll(async () => {
  control = await startControl({ log });
});
afterEach(() => {
  const leaks = lines.filter((line) => holds(line, CANARY));
  lines.length = 0;
  expect(leaks).toEqual([]);
});
afterAll(() => control.close());

const connection = (more: object = {}) => ({
  name: "one",
  origin: "https://one.example.com",
  authentication: { type: "bearer", secret: CANARY },
  allow: { methods: ["GET"], paths: ["/*"] },
  ...more,
});
const SECOND = connection({ name: "two", origin: "https://two.example.com" });
const create = () => control.createLive({ secrets: { TOKEN: CANARY }, connections: [connection()] });
const errors = () => lines.map((line) => JSON.parse(line)).filter(({ level }) => level >= 50);

/** The request fails with 500, and the log has an error line about it, without which there would be nothing to search. */
async function expectFailure(call: string, body?: object): Promise<void> {
  const answer = await control.ask(call, body && { body });
  expect([call, answer.status, answer.body.code]).toEqual([call, 500, "internal"]);
  expect(holds(answer.text, CANARY)).toBe(false);
  expect(errors()).toContainEqual(
    expect.objectContaining({ request_id: answer.headers["x-request-id"], err: expect.anything() }),
  );
}

test("the search finds what is there in every form, and the log takes out fields that are named as secrets", () => {
  const bytes = Buffer.from(`..${CANARY}..`);
  for (const text of ["hex", "base64", "base64url", "latin1"] as const)
    expect(holds(bytes.toString(text), CANARY)).toBe(true);
  for (const start of [0, 1]) expect(holds(bytes.subarray(start).toString("base64"), CANARY)).toBe(true);
  log.error({ secret: CANARY, of: { token: CANARY, the: { password: CANARY } } }, "a line");
  expect(JSON.parse(lines.at(-1) ?? "")).toMatchObject({
    ...{ secret: "[removed]", of: { token: "[removed]", the: { password: "[removed]" } } },
  });
});

describe("a request with a malformed secret leaves none in the log, and is answered without it:", () => {
  let id: string;
  beforeAll(async () => {
    id = await create();
  });

  const secrets: unknown[] = [`${CANARY} ü`, `${CANARY}\n`, `${CANARY}\0`, [CANARY], { [CANARY]: CANARY }];
  const connections = secrets.map((secret) => connection({ authentication: { type: "bearer", secret } }));
  const registry = { name: "hub", registry_host: "docker.io", username: "u", secret: CANARY };
  const REQUESTS: [call: string, bodies: unknown[]][] = [
    [
      "POST /v1/sessions",
      [
        ...[[CANARY], { TOKEN: [CANARY] }, { TOKEN: `${CANARY}\0` }, { TOKEN: `${CANARY}\ud800` }].map(
          (wrong) => ({ secrets: wrong }),
        ),
        { secrets: { TOKEN: CANARY }, env: { TOKEN: CANARY } },
        { secrets: { TOKEN: CANARY }, size: "huge" },
        ...connections.map((one) => ({ connections: [one] })),
      ],
    ],
    ["POST /v1/sessions/:id/connections", connections],
    ["PUT /v1/sessions/:id/connections/one", connections],
    [
      "POST /v1/registry-credentials",
      [
        { ...registry, secret: [CANARY] },
        { ...registry, secret: `${CANARY}\0` },
        { ...registry, username: `u:${CANARY}` },
        { ...registry, registry_host: `https://u:${CANARY}@docker.io` },
        { ...registry, password: CANARY },
      ],
    ],
    ["POST /v1/sessions/:id/tokens", [{ ttl_seconds: 60, secret: CANARY }]],
  ];
  test.each(REQUESTS)("%s", async (call, bodies) => {
    for (const body of bodies) {
      const text = JSON.stringify(body);
      for (const raw of [text, `${text}}`, text.slice(0, -1), text.replaceAll('"', "'")]) {
        const answer = await control.ask(call.replace(":id", id), { raw });
        expect([raw, answer.status]).toEqual([raw, 400]);
        expect(holds(answer.text, CANARY)).toBe(false);
      }
    }
  });
});

test("a node that refuses a session's credentials, its machine and its commands", async () => {
  const id = await create();
  const refuse = async () => {
    throw new Refusal("network_unconfirmed", "not now");
  };
  control.node.onConnections = refuse;
  for (const answer of [
    await control.ask(`POST /v1/sessions/${id}/connections`, { body: SECOND }),
    await control.ask(`PUT /v1/sessions/${id}/connections/one`, { body: connection() }),
  ])
    expect([answer.status, answer.body.code]).toEqual([503, "session_node_unavailable"]);
  control.node.onConnections = async () => {};
  control.node.onStart = () => {
    throw new Refusal("internal", "no machine");
  };
  const failed = await control.create({ secrets: { TOKEN: CANARY }, connections: [connection()] });
  await control.until(failed, "failed");
  control.node.onStart = () => {};
  await eventually(() => expect(lines.join("")).toContain("the node refuses to start a machine"));
  const { onExec } = control.node;
  control.node.onExec = () => {
    throw new Refusal("internal", "no command");
  };
  await expectFailure(`POST /v1/sessions/${id}/exec`, { command: ["echo", CANARY] });
  control.node.onExec = onExec;
});

test.each(["connections", "sealed_values"])("a database that refuses a row of %s", async (table) => {
  const id = await create();
  // The refusal of PostgreSQL has the row in it.
  await control.sql.query(`alter table ${table} add constraint none check (false) not valid`);
  try {
    await expectFailure("POST /v1/sessions", { secrets: { TOKEN: CANARY }, connections: [connection()] });
    expect(JSON.stringify(errors())).toContain("Failing row contains");
    if (table === "sealed_values") return;
    await expectFailure(`POST /v1/sessions/${id}/connections`, SECOND);
    await expectFailure(`PUT /v1/sessions/${id}/connections/one`, connection());
  } finally {
    await control.sql.query(`alter table ${table} drop constraint none`);
  }
});

test("rows that are damaged", async () => {
  const id = await create();
  await control.sql.query(
    "update sealed_values set sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1) where session_id = $1",
    [id],
  );
  await expectFailure(`POST /v1/sessions/${id}/exec`, { command: ["true"] });
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await control.sql.query(
    "update connections set sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1) where session_id = $1",
    [id],
  );
  await expectFailure(`POST /v1/sessions/${id}/resume`);
  await control.sql.query(
    "update sessions set data_key = set_byte(data_key, 20, get_byte(data_key, 20) # 1) where id = $1",
    [id],
  );
  await expectFailure(`POST /v1/sessions/${id}/connections`, SECOND);
});
