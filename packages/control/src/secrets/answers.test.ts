/** No answer of the service and no row of its database has a credential that was given to it, or that it made. */
import { readFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { holds } from "../../test-support/forms-of.ts";
import { answerReads } from "../../test-support/guest-reads.ts";
import { dumpRows } from "../db/dump-rows.ts";

const PLAIN = "plainly-2d90c1";
const GIVEN = [
  "canary-secret-91b2",
  "canary-connection-c07d",
  "canary-replaced-44e1",
  "canary-registry-8f3a",
];
const [SECRET, CONNECTION, REPLACED, REGISTRY] = GIVEN as [string, string, string, string];

let control: Control;
/** Tokens, keys, and what opens a preview, without their prefix. */
let made: string[];
let params: Record<string, string>;
beforeAll(async () => {
  control = await startControl();
  control.node.onGuest = answerReads;
  const post = async (call: string, body: object = {}) => {
    const answer = await control.ask(`POST /v1/${call}`, { body });
    if (answer.status >= 300) throw new Error(`${call} answered ${answer.status}: ${answer.text}`);
    return answer.body;
  };
  const connection = (secret: string) => ({
    origin: "https://one.example.com",
    authentication: { type: "bearer", secret },
    allow: { methods: ["GET"], paths: ["/*"] },
  });
  const id = await control.createLive({
    name: "swept",
    secrets: { TOKEN: SECRET },
    env: { MODE: PLAIN },
    connections: [{ name: "one", ...connection(CONNECTION) }],
    command_capture: "full",
  });
  await control.ask(`PUT /v1/sessions/${id}/connections/one`, { body: connection(REPLACED) });
  await control.exec(id, ["curl", "-H", `Authorization: Bearer ${SECRET}`]);
  await post("registry-credentials", {
    ...{ name: "hub", registry_host: "docker.io", username: "u", secret: REGISTRY },
  });
  const token = await post(`sessions/${id}/tokens`, { ttl_seconds: 3_600 });
  const key = await post("api-keys", { name: "made" });
  for (const credential of [token.token, key.key])
    expect((await control.ask(`GET /v1/sessions/${id}`, { key: credential })).status).toBe(200);
  const preview = await post(`sessions/${id}/expose`, { port: 3000, auth: "bearer" });
  made = [token.token, key.key, preview.ingress_token, preview.auth_token, control.key, operatorKey()].map(
    (text) => text.replace(/^viv_(st_|op_)?/, ""),
  );
  const artifact = await post(`sessions/${id}/artifacts`, { paths: ["a"] });
  await post(`sessions/${id}/templates`, { name: "web" });
  params = {
    id,
    name: "web",
    kid: key.id,
    cid: (await post(`sessions/${id}/checkpoints`)).checkpoint_id,
    pid: (await post("projects", { name: "p" })).id,
    vid: (await post("volumes")).id,
    aid: artifact.id,
    position: "0",
  };
});
afterAll(() => control.close());

const operatorKey = () => readFileSync(path.join(control.settings.controlDir, "operator.key"), "utf8").trim();

/** Credentials that were given, and any eight characters in a row of those that were made. */
function leaksIn(text: string): string[] {
  const parts = made.flatMap((random) =>
    Array.from({ length: random.length - 7 }, (_, at) => random.slice(at, at + 8)),
  );
  return [
    ...[...GIVEN, ...made].filter((value) => holds(text, value)),
    ...parts.filter((part) => text.includes(part)),
  ];
}

/** Questions that a path alone does not ask. */
const QUERIES: Record<string, string> = {
  "/v1/sessions/{id}/files": "?path=a",
  "/v1/sessions/{id}/files/stream": "?path=a",
};
/** They answer with what they are asked for in another way: a WebSocket, a signed link, the log of an import. */
const NOT_HERE = [
  "/v1/sessions/{id}/pty",
  "/v1/sessions/{id}/tunnel",
  "/v1/artifacts/{aid}/files/{position}",
  "/v1/templates/{name}/log",
];

test("no GET answers with a credential; those that show variables show them", async () => {
  const { body } = await control.ask("GET /v1/openapi.json");
  const paths = Object.entries<object>(body.paths).flatMap(([one, verbs]) => ("get" in verbs ? [one] : []));
  const leaks: unknown[] = [];
  const showing: string[] = [];
  const failed: unknown[] = [];
  for (const one of paths) {
    const url = one.replace(/\{(\w+)\}/g, (_all, name: string) => params[name] ?? "") + (QUERIES[one] ?? "");
    const answer = await control.ask(`GET ${url}`, {
      headers: { accept: "application/json" },
      ...(one.startsWith("/v1/admin") && { key: operatorKey() }),
    });
    if (answer.status !== 200 && !NOT_HERE.includes(one)) failed.push([url, answer.status, answer.text]);
    const text = answer.text + JSON.stringify(answer.headers);
    for (const leak of leaksIn(text)) leaks.push([url, leak]);
    if (holds(text, PLAIN)) showing.push(one);
  }
  expect(failed).toEqual([]);
  expect(leaks).toEqual([]);
  expect(showing.toSorted()).toEqual(["/v1/sessions", "/v1/sessions/{id}"]);
});

test("no row of the database has one, once the audit log has them all", async () => {
  await eventually(async () => {
    const { rows } = await control.sql.query("select from audit_log where action = 'session.exec'");
    expect(rows).toHaveLength(1);
  });
  const lines: string[] = [];
  await dumpRows(control.settings.databaseUrl, async (line) => void lines.push(line));
  const dump = lines.join("\n");
  expect(leaksIn(dump)).toEqual([]);
  // The same search finds what is there: the beginning of a key, and a name in the form of its bytes.
  expect(dump).toContain(`viv_${made[1]?.slice(0, 6)}`);
  expect(holds(dump, "one.example.com")).toBe(true);
});
