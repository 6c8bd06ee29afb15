import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { isOpen, type Opening } from "@vivarium/kit/ipv4-openings";
import { inNetworkWith } from "@vivarium/kit/test-support/network-with-address";
import { expect, onTestFinished, test } from "vitest";
import { checkSettings } from "./check-settings.ts";

test("settings that open private addresses are checked before anything starts", async () => {
  await checkSettings({ childEnv: {} });
  await checkSettings({ childEnv: { VIV_PRIVATE_OPEN: "10.1.2.3:443" } });
  await expect(checkSettings({ childEnv: { VIV_PRIVATE_OPEN: "10.1.2.3" } })).rejects.toThrow(
    'VIV_PRIVATE_OPEN names "10.1.2.3", which has no port',
  );
  const closed = { VIV_PRIVATE_OPEN: "10.1.2.3:443", VIV_NEVER_RANGES: "10.1.0.0/16" };
  await expect(checkSettings({ childEnv: closed })).rejects.toThrow("which has addresses of 10.1.0.0/16");
});

test("a bucket is checked before anything starts", async () => {
  await expect(checkSettings({ childEnv: { VIV_OBJECTS: "bucket" } })).rejects.toThrow(
    "VIV_OBJECTS: must be a bucket and perhaps a prefix",
  );
  await expect(checkSettings({ childEnv: { VIV_OBJECTS: "s3://bucket" } })).rejects.toThrow(
    "needs a credential",
  );
});

test("no address of this host is open, named alone or in a range", async () => {
  const [own, other] = ["10.44.5.6", "10.44.5.7"];
  const code = `import { privateOpenOf } from ${JSON.stringify(new URL("check-settings.ts", import.meta.url).href)};
    const open = (text) => privateOpenOf({ VIV_PRIVATE_OPEN: text });
    const refusalOf = (text) => { try { open(text); } catch (error) { return error.message; } };
    console.log(JSON.stringify([refusalOf("${own}:443"), refusalOf("${other}:443"), open("10.44.5.0/24:443")]));`;
  const [refused, admitted, range] = (await inNetworkWith(own, code)) as [string, null, Opening[]];
  expect([refused, admitted]).toEqual([expect.stringContaining("an address of this host"), null]);
  expect([isOpen(range, own, 443), isOpen(range, other, 443)]).toEqual([false, true]);
});

test.each([
  "postgresql://someone:secret@10.7.0.9/data",
  "postgresql://10.7.0.9:5432/data",
  "postgres://someone@/data?host=10.7.0.9",
  "postgres://someone@10.9.9.9/data?host=10.7.0.9",
  "postgres://someone@/data?host=10.9.9.9,10.7.0.9&port=5433,5432",
])("the service's database at %s stays closed", async (databaseUrl) => {
  const check = (open: string) => checkSettings({ childEnv: { VIV_PRIVATE_OPEN: open }, databaseUrl });
  await expect(check("10.7.0.0/24:5432")).rejects.toThrow(
    "VIV_PRIVATE_OPEN opens 10.7.0.9:5432, where this service has its database",
  );
  await expect(check("10.7.0.9:5432")).rejects.not.toThrow("secret");
  await check("10.7.0.0/24:443");
  await check("10.7.1.0/24:5432");
});

test("a database behind a socket, or an address that cannot be read", async () => {
  const check = (databaseUrl: string) =>
    checkSettings({ childEnv: { VIV_PRIVATE_OPEN: "10.7.0.0/24:5432" }, databaseUrl });
  await check("postgres://vivarium@/vivarium?host=%2Frun%2Fpostgresql");
  await expect(check("postgres://someone:secret@[/data")).rejects.toThrow("DATABASE_URL cannot be read");
  await expect(check("postgres://someone:secret@[/data")).rejects.not.toThrow("secret");
});

const BUCKET = { VIV_OBJECTS: "s3://bucket", AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "key" };

test.each([
  ["the object store", { ...BUCKET, VIV_OBJECTS_ENDPOINT: "http://10.7.0.9:9000" }, "VIV_OBJECTS_ENDPOINT"],
  [
    "the object store, by an address of IPv6",
    { ...BUCKET, VIV_OBJECTS_ENDPOINT: "http://[::ffff:10.7.0.9]:9000" },
    "VIV_OBJECTS_ENDPOINT",
  ],
  ["the interface for clients", { VIV_PUBLIC_URL: "http://10.7.0.9:9000/v" }, "VIV_PUBLIC_URL"],
])("%s at a private address stays closed to sessions", async (_part, env, setting) => {
  const check = (open: string) => checkSettings({ childEnv: { ...env, VIV_PRIVATE_OPEN: open } });
  await expect(check("10.7.0.0/24:9000")).rejects.toThrow(
    new RegExp(`^VIV_PRIVATE_OPEN opens 10\\.7\\.0\\.9:9000, where this service has .*\\(${setting}\\)$`),
  );
  await expect(check("10.7.0.9:9000")).rejects.toThrow("VIV_PRIVATE_OPEN opens 10.7.0.9:9000");
  await check("10.7.0.0/24:9001");
  await check("10.7.1.0/24:9000");
});

test("a part of the service whose name has no address yet might get one that is open: nothing starts", async () => {
  const endpoint = { ...BUCKET, VIV_OBJECTS_ENDPOINT: "http://s3.viv-test.invalid:9000" };
  await checkSettings({ childEnv: endpoint });
  const open = { VIV_PRIVATE_OPEN: "10.7.0.0/24:9000" };
  await expect(checkSettings({ childEnv: { ...endpoint, ...open } })).rejects.toThrow(
    "the address of s3.viv-test.invalid (VIV_OBJECTS_ENDPOINT) cannot be found",
  );
  const databaseUrl = "postgres://someone:secret@db.viv-test.invalid/data";
  await expect(checkSettings({ childEnv: open, databaseUrl })).rejects.toThrow(
    "the address of db.viv-test.invalid (DATABASE_URL) cannot be found",
  );
  // Clients alone use this one.
  await checkSettings({ childEnv: { ...open, VIV_PUBLIC_URL: "https://viv-test.invalid" } });
});

test("a file of settings for guests is read before anything starts", async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "viv-check-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = path.join(folder, "guest.json");
  const check = () => checkSettings({ childEnv: { VIV_GUEST_SETTINGS: file } });
  await expect(check()).rejects.toThrow(`VIV_GUEST_SETTINGS: ${file}: ENOENT`);
  await expect(checkSettings({ childEnv: { VIV_GUEST_SETTINGS: "guest.json" } })).rejects.toThrow(
    "expected an absolute path",
  );
  await writeFile(file, '{"variables": {"http_proxy": 1}}');
  await expect(check()).rejects.toThrow(`${file}: variables.http_proxy: must be text`);
  await writeFile(file, '{"variables": {"http_proxy": "http://10.1.2.3:3128"}}');
  await check();
});
