import { mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { PreviewRoute } from "@vivarium/contract/gateway";
import type { PreviewTable } from "@vivarium/contract/node";
import { createLog } from "@vivarium/kit/log";
import { afterEach, beforeEach, expect, it } from "vitest";
import { GatewayLink } from "./gateway-link.ts";
import { Previews, previewsFile, readPreviews, writePreviews } from "./previews.ts";

const route = (port: number): PreviewRoute => ({
  session_id: "a".repeat(21),
  port,
  version: 1,
  visibility: "public",
  cookie_key: "c".repeat(64),
  wake_on_http: true,
  state: "live",
});
const tableOf = (version: number, ...ports: number[]): PreviewTable => ({
  version,
  routes: ports.map(route),
});

let dataDir: string;
let warnings: string[];
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "previews-"));
  warnings = [];
});
afterEach(() => rm(dataDir, { recursive: true, force: true }));

function read(): Promise<PreviewTable | undefined> {
  const log = createLog("previews", "silent");
  log.warn = (_details: unknown, message?: string) => void warnings.push(String(message));
  return readPreviews({ log }, dataDir);
}

/** The previews that a new process over the directory reads. */
async function startPreviews(): Promise<Previews> {
  return new Previews({ table: await read(), keep: (table) => writePreviews(dataDir, table) });
}

/** A gateway that confirms everything, and the ports it was sent, in order. */
function linkOf(previews: Previews): { link: GatewayLink; sent: number[][] } {
  const sent: number[][] = [];
  const link = new GatewayLink({
    compose: (version) => ({ version, slots: [], routes: previews.routes, never: [], resolvers: [] }),
    expectGatewayMs: 0,
  });
  const send = (line: string) => {
    const tables = JSON.parse(line) as { version: number; routes: PreviewRoute[] };
    sent.push(tables.routes.map(({ port }) => port));
    setImmediate(() => link.stream.applied(tables.version));
    return true;
  };
  link.stream.connect({ send, close: () => undefined });
  return { link, sent };
}

it("has the routes and their version again after a restart, in the first tables for the gateway", async () => {
  const before = await startPreviews();
  const { link } = linkOf(before);
  await before.replace(link, tableOf(6, 3000));
  await before.replace(link, tableOf(7, 3000, 8080));
  const after = await startPreviews();
  expect(after.version).toBe(7);
  expect(linkOf(after).sent).toEqual([[3000, 8080]]);
  expect(await readdir(dataDir)).toEqual(["previews.json"]);
  expect((await stat(previewsFile(dataDir))).mode & 0o777).toBe(0o600);
});

it("has no routes if no port was ever exposed", async () => {
  const previews = await startPreviews();
  expect([previews.version, previews.routes, warnings]).toEqual([0, [], []]);
});

it("has no routes if the file is torn or something else, and logs that", async () => {
  const damages = ['{"version":7,"routes":[', '{"version":7}', '{"version":0,"routes":[]}'];
  for (const text of damages) {
    await writeFile(previewsFile(dataDir), text);
    const previews = await startPreviews();
    expect([previews.version, previews.routes]).toEqual([0, []]);
  }
  expect(warnings).toHaveLength(damages.length);
});

it("confirms no table that it could not keep, still closes the routes it removes, and keeps it when it is sent again", async () => {
  let isFull = false;
  const keep = async (table: PreviewTable) => {
    if (isFull) throw new Error("no space left on device");
    await writePreviews(dataDir, table);
  };
  const previews = new Previews({ keep });
  const { link, sent } = linkOf(previews);
  await previews.replace(link, tableOf(1, 3000));
  isFull = true;
  await expect(previews.replace(link, tableOf(2))).rejects.toThrow("no space left");
  await new Promise((resolve) => setImmediate(resolve));
  expect(sent.at(-1)).toEqual([]);
  isFull = false;
  await previews.replace(link, tableOf(2));
  expect(await read()).toEqual(tableOf(2));
});

it("keeps the newest of concurrent tables", async () => {
  const previews = await startPreviews();
  const { link } = linkOf(previews);
  await Promise.all([1, 2, 3, 4].map((version) => previews.replace(link, tableOf(version, 3000 + version))));
  expect(await read()).toEqual(tableOf(4, 3004));
});

it("refuses an older version, and the same version with other routes; confirms the same table again", async () => {
  await writePreviews(dataDir, tableOf(5, 3000));
  const previews = await startPreviews();
  const { link } = linkOf(previews);
  await expect(previews.replace(link, tableOf(4, 3000))).rejects.toMatchObject({ code: "network_conflict" });
  await expect(previews.replace(link, tableOf(5, 8080))).rejects.toMatchObject({ code: "network_conflict" });
  await previews.replace(link, tableOf(5, 3000));
  expect(previews.routes).toEqual([route(3000)]);
});
