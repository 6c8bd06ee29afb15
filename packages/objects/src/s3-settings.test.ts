import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { readS3Settings } from "./s3-settings.ts";

const dir = mkdtempSync(path.join(tmpdir(), "s3-settings-"));
afterAll(() => rmSync(dir, { recursive: true }));

const KEYS = { AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "secret" };
const read = (more: Record<string, string>) => readS3Settings({ ...KEYS, ...more });

test("without a bucket there are no settings", () => {
  expect(readS3Settings({})).toBeUndefined();
  expect(readS3Settings({ ...KEYS, VIV_OBJECTS: "" })).toBeUndefined();
});

test("a bucket of AWS is named in hosts, one elsewhere in paths, unless it is set", () => {
  expect(read({ VIV_OBJECTS: "s3://bucket" })).toMatchObject({
    bucket: "bucket",
    prefix: "",
    endpoint: undefined,
    region: "us-east-1",
    isPathStyle: false,
  });
  const elsewhere = {
    VIV_OBJECTS: "s3://my.bucket/a/b/",
    VIV_OBJECTS_ENDPOINT: "https://s3.example.net:9000/",
  };
  expect(read({ ...elsewhere, VIV_OBJECTS_REGION: "eu-1" })).toMatchObject({
    bucket: "my.bucket",
    prefix: "a/b/",
    endpoint: "https://s3.example.net:9000",
    region: "eu-1",
    isPathStyle: true,
  });
  expect(read({ ...elsewhere, VIV_OBJECTS_PATH_STYLE: "0" })).toMatchObject({ isPathStyle: false });
});

test.each([
  "bucket",
  "s3://",
  "s3://UPPER",
  "s3://bucket/../x",
  "s3://bucket//x",
  "s3://bucket/a b",
  "gs://bucket",
])("a value that names no bucket is refused: %s", (place) => {
  expect(() => read({ VIV_OBJECTS: place })).toThrow(
    "VIV_OBJECTS: must be a bucket and perhaps a prefix, for example s3://bucket",
  );
});

test("other values are refused with their names, and an endpoint is not repeated", () => {
  const place = { VIV_OBJECTS: "s3://bucket" };
  expect(() => read({ ...place, VIV_OBJECTS_REGION: "EU 1" })).toThrow("VIV_OBJECTS_REGION: must be");
  expect(() => read({ ...place, VIV_OBJECTS_PATH_STYLE: "yes" })).toThrow(
    "VIV_OBJECTS_PATH_STYLE: must be 1",
  );
  for (const endpoint of [
    "s3.example.net",
    "https://user:geheim@s3.example.net",
    "https://s3.example.net/geheim",
  ]) {
    const refused = () => read({ ...place, VIV_OBJECTS_ENDPOINT: endpoint });
    expect(refused).toThrow("VIV_OBJECTS_ENDPOINT: must be the address of the server alone");
    expect(refused).not.toThrow("geheim");
  }
});

test("a credential comes from the environment, and is no part of what a log would show", async () => {
  const settings = read({ VIV_OBJECTS: "s3://bucket", AWS_SESSION_TOKEN: "token" });
  expect(await settings?.credentials()).toEqual({
    accessKeyId: "id",
    secretAccessKey: "secret",
    sessionToken: "token",
  });
  expect(JSON.stringify(settings)).not.toMatch(/secret|token/);
  expect(() => readS3Settings({ VIV_OBJECTS: "s3://bucket", AWS_ACCESS_KEY_ID: "id" })).toThrow(
    "a bucket needs a credential: set VIV_OBJECTS_CREDENTIALS_FILE, or AWS_ACCESS_KEY_ID and",
  );
});

test("a credential comes from the first profile of a file, each time anew", async () => {
  const file = path.join(dir, "credentials");
  const settings = readS3Settings({
    ...KEYS,
    VIV_OBJECTS: "s3://bucket",
    VIV_OBJECTS_CREDENTIALS_FILE: file,
  });
  await expect(settings?.credentials()).rejects.toThrow(
    "VIV_OBJECTS_CREDENTIALS_FILE: cannot be read: ENOENT",
  );
  writeFileSync(
    file,
    "[default]\naws_access_key_id = one\naws_secret_access_key=a/b+c=\n\n[x]\naws_session_token = t\n",
  );
  expect(await settings?.credentials()).toEqual({ accessKeyId: "one", secretAccessKey: "a/b+c=" });
  writeFileSync(file, "aws_access_key_id=two\naws_secret_access_key=b\naws_session_token=t\n");
  expect(await settings?.credentials()).toEqual({
    accessKeyId: "two",
    secretAccessKey: "b",
    sessionToken: "t",
  });
  writeFileSync(file, "[default]\naws_access_key_id = geheim\n");
  const error = await settings?.credentials().catch((thrown: unknown) => thrown);
  expect(String(error)).toContain("lacks a line aws_access_key_id = … or aws_secret_access_key = …");
  expect(String(error)).not.toContain("geheim");
  const relative = { VIV_OBJECTS: "s3://bucket", VIV_OBJECTS_CREDENTIALS_FILE: "credentials" };
  expect(() => readS3Settings(relative)).toThrow("VIV_OBJECTS_CREDENTIALS_FILE: must be an absolute path");
});
