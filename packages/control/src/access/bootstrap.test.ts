import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { createDatabase, createEmptyDatabase, silentLog } from "../../test-support/database.ts";
import { createApp } from "../app.ts";

function folder(): string {
  const dir = mkdtempSync(path.join(tmpdir(), "control-"));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

const keyIn = (controlDir: string) => readFileSync(path.join(controlDir, "bootstrap.key"), "utf8").trim();

async function start(databaseUrl: string, controlDir: string) {
  return await createApp({ databaseUrl, controlDir, nodeSocket: "/nonexistent" }, silentLog);
}

test("the first start makes a key that works, in a file that only its owner can read", async () => {
  const [url, dir] = [await createDatabase(), folder()];
  const app = await start(url, dir);
  expect(app.mintedKey).toBe(keyIn(dir));
  expect(app.mintedKey).toMatch(/^viv_[A-Za-z0-9]{40}$/);
  for (const file of ["bootstrap.key", "pepper"])
    expect(statSync(path.join(dir, file)).mode & 0o777).toBe(0o600);
  const answer = await app.server.inject({
    url: "/v1/org",
    headers: { authorization: `Bearer ${keyIn(dir)}` },
  });
  expect(answer.statusCode).toBe(200);
  await app.close();

  const again = await start(url, dir);
  expect(again.mintedKey).toBeUndefined();
  const later = await again.server.inject({
    url: "/v1/org",
    headers: { authorization: `Bearer ${keyIn(dir)}` },
  });
  expect(later.json().org_id).toBe(answer.json().org_id);
  await again.close();
});

test("a fresh database gets a new key although the file of an older one is there", async () => {
  const dir = folder();
  writeFileSync(path.join(dir, "bootstrap.key"), "viv_old\n", { mode: 0o644 });
  const app = await start(await createDatabase(), dir);
  expect(keyIn(dir)).toBe(app.mintedKey);
  expect(statSync(path.join(dir, "bootstrap.key")).mode & 0o777).toBe(0o600);
  await app.close();
});

test("processes that start together on a fresh database agree on one organisation", async () => {
  const [url, dir] = [await createEmptyDatabase(), folder()];
  await (await import("./pepper.ts")).loadPepper(dir);
  const apps = await Promise.all([start(url, dir), start(url, dir), start(url, dir)]);
  expect(apps.filter((app) => app.mintedKey !== undefined)).toHaveLength(1);
  await Promise.all(apps.map((app) => app.close()));
});

test("a database that was set up with another pepper is refused with the way out", async () => {
  const [url, dir] = [await createDatabase(), folder()];
  await (await start(url, dir)).close();
  rmSync(path.join(dir, "pepper"));
  await expect(start(url, dir)).rejects.toThrow(
    /is not the one this database was set up with.*restore the file/,
  );
});
