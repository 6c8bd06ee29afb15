/** The network verbs of the command line, and the SDK's previews, with real machines. */
import { createHash } from "node:crypto";
import type { EgressLogEntry } from "@vivarium/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startViv, viv } from "../support/command-line.ts";
import { eventually } from "../support/eventually.ts";
import { client, sh } from "../support/http.ts";

const PORT = 8000;
let id: string;

const inGuest = async (script: string) =>
  (await client.sessions.exec(id, { command: sh(script), timeout_ms: 60_000 })).stdout.trim();
const record = async () => JSON.parse(await viv("get", "--json", id));
const fetchPage = async (path = "/page") => await (await client.session(id).preview(PORT)).fetch(path);

/** Asks the name server for a name; the answer does not matter. */
const lookUp = (name: string) => inGuest(`getent ahostsv4 ${name} > /dev/null; echo asked`);

beforeAll(async () => {
  ({ session_id: id } = await client.sessions.create({ egress: { mode: "deny", allow: [] } }));
  await client.sessions.waitUntilLive(id);
  await client.session(id).files.write("page", "from the guest\n");
  const command = ["python3", "-m", "http.server", "--bind", "0.0.0.0", String(PORT)];
  await client.session(id).processes.start({ name: "web", command });
  await eventually(
    async () => expect(await inGuest(`curl -s http://127.0.0.1:${PORT}/page`)).toBe("from the guest"),
    60_000,
  );
});
afterAll(async () => {
  await client.sessions.delete(id).catch(() => {});
});

test("an exposed port is reached through its URL, until it is closed", async () => {
  const url = await viv("expose", id, String(PORT));
  expect(url).toMatch(new RegExp(`^https?://${PORT}-${id}\\..+/\\?t=[\\w-]{43}$`));
  expect(await viv("expose", id, String(PORT))).toBe(url);
  expect(await viv("open", id, String(PORT))).toBe(url);
  expect(await viv("get", id)).toMatch(
    new RegExp(`^port ${PORT} +https?://${PORT}-${id}\\.\\S+ \\(token\\)$`, "m"),
  );
  await eventually(async () => expect(await (await fetchPage()).text()).toBe("from the guest\n"));

  const { ok } = JSON.parse(await viv("unexpose", "--json", id, String(PORT)));
  expect(ok).toBe(true);
  expect(await record()).not.toHaveProperty("exposed_previews");
  const again = await startViv("unexpose", id, String(PORT)).ended;
  expect(again).toMatchObject({ code: 0, err: expect.stringContaining("was not exposed") });
});

test("rotating ends the old token, and bearer is asked for when it is on", async () => {
  await viv("expose", id, String(PORT));
  const old = await client.session(id).preview(PORT);
  expect((await old.fetch("/page")).status).toBe(200);
  await viv("expose", "--rotate", id, String(PORT));
  expect((await old.fetch("/page")).status).toBe(404);
  expect((await fetchPage()).status).toBe(200);

  const made = JSON.parse(await viv("expose", "--json", "--public", "--bearer", id, String(PORT)));
  expect(made).toMatchObject({ visibility: "public", auth: "bearer", auth_token: expect.any(String) });
  const { session_id, auth_token: authToken } = made;
  const admitted = await client.session(session_id).preview(PORT, { authToken });
  expect((await admitted.fetch("/page")).status).toBe(200);
  const intruder = await client.session(session_id).preview(PORT, { authToken: "wrong" });
  expect((await intruder.fetch("/page")).status).toBe(401);
  const opened = await startViv("open", id, String(PORT)).ended;
  expect(opened).toMatchObject({ code: 1, out: "", err: expect.stringContaining("bearer token") });
  await viv("unexpose", id, String(PORT));
});

test("a large file comes through a preview whole, and a paused session wakes for it", async () => {
  const sum = (await inGuest("head -c 20000000 /dev/urandom > large; sha256sum large")).split(" ")[0];
  await viv("expose", id, String(PORT));
  const preview = await client.session(id).preview(PORT);
  await viv("pause", id);
  const response = await preview.fetch("/large");
  expect(response.status).toBe(200);
  const bytes = new Uint8Array(await response.arrayBuffer());
  expect(createHash("sha256").update(bytes).digest("hex")).toBe(sum);
  expect(await record()).toMatchObject({ state: "live" });
  await viv("unexpose", id, String(PORT));
});

test("refusals are in the log, and a follow prints new ones, until the session ends", async () => {
  await viv("egress", "set", "--mode", "deny", id);
  await lookUp("first.example.com");
  const denied = async (): Promise<EgressLogEntry[]> =>
    JSON.parse(await viv("egress", "log", "--denied", "--json", id)).entries;
  await eventually(
    async () =>
      expect(await denied()).toContainEqual(
        expect.objectContaining({ kind: "dns", host: "first.example.com", reason: "name_not_allowed" }),
      ),
    60_000,
  );
  const follow = startViv("egress", "log", "-f", "--json", "--denied", id);
  let printed = "";
  follow.stdout?.on("data", (chunk: Buffer) => {
    printed += chunk.toString();
  });
  const linesAbout = (host: string) => printed.split("\n").filter((line) => line.includes(`"${host}"`));
  await eventually(() => expect(linesAbout("first.example.com")).not.toEqual([]));
  await lookUp("second.example.com");
  await eventually(() => expect(linesAbout("second.example.com")).not.toEqual([]));
  // No line comes twice; a second question for the name may reach the log later than the first.
  const lines = linesAbout("first.example.com");
  expect(new Set(lines).size).toBe(lines.length);
  follow.kill("SIGINT");
  expect(await follow.ended).toMatchObject({ code: 0, err: "" });
});
