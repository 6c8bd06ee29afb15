import { LIMITS } from "@vivarium/contract/api";
import { expect, test } from "vitest";
import { readConfig } from "./config.ts";

const read = (more: NodeJS.ProcessEnv) => readConfig({ DATABASE_URL: "postgres://db", ...more });

test("saved states are kept in a bucket, in a directory only if that is asked for, and else packed there when the disk is nearly full", () => {
  const hasArchives = (more: NodeJS.ProcessEnv) => read(more).hasArchives;
  const hasWarmTier = (more: NodeJS.ProcessEnv) => read(more).hasWarmTier;
  const bucket = { VIV_OBJECTS: "s3://bucket", AWS_ACCESS_KEY_ID: "a", AWS_SECRET_ACCESS_KEY: "b" };
  expect(hasArchives({})).toBe(false);
  expect(hasArchives({ VIV_ARCHIVES: "1" })).toBe(true);
  expect(hasArchives(bucket)).toBe(true);
  expect(hasArchives({ ...bucket, VIV_ARCHIVES: "0" })).toBe(false);
  expect(hasWarmTier({})).toBe(true);
  for (const other of [{ VIV_ARCHIVES: "0" }, { VIV_ARCHIVES: "1" }, bucket])
    expect(hasWarmTier(other)).toBe(false);
});

test("localhost, which has two addresses, is listened on at 127.0.0.1 only", () => {
  expect(read({ VIV_LISTEN: "localhost:7400" }).listen).toEqual({ host: "127.0.0.1", port: 7400 });
  expect(read({ VIV_LISTEN: "[::1]:7400" }).listen).toEqual({ host: "::1", port: 7400 });
});

test("an unusable value is refused with the name of its variable", () => {
  expect(() => readConfig({})).toThrow("environment variable DATABASE_URL: is required");
  expect(() => read({ VIV_LISTEN: "7400" })).toThrow("environment variable VIV_LISTEN: must be host:port");
  expect(() => read({ VIV_LISTEN: "x:70000" })).toThrow("the port must be at most 65535, got 70000");
});

test("by default, other control planes may serve the database as well", () => {
  expect(read({}).isAlone).toBe(false);
  expect(read({ VIV_SOLE_CONTROL: "1" }).isAlone).toBe(true);
});

test("the operator sets the ceiling of sessions", () => {
  expect(read({}).sessionCeiling).toBe(10);
  for (const count of [1, 60, 1_000_000])
    expect(read({ VIV_CONCURRENT_SESSIONS: String(count) }).sessionCeiling).toBe(count);
  for (const wrong of ["0", "1000001", "9999999999", "-1", "1.5", "1e3", "many", ""])
    expect(() => read({ VIV_CONCURRENT_SESSIONS: wrong })).toThrow(
      "environment variable VIV_CONCURRENT_SESSIONS: must be a whole number from 1 to 1000000",
    );
});

test("the operator changes the limit of wrong credentials, or turns it off", () => {
  expect(read({}).wrongCredentialsPerMinute).toBe(60);
  for (const count of [0, 1, 1_000_000])
    expect(read({ VIV_WRONG_CREDENTIALS_PER_MINUTE: String(count) }).wrongCredentialsPerMinute).toBe(count);
  for (const wrong of ["-1", "0.5", "1000001", "off", ""])
    expect(() => read({ VIV_WRONG_CREDENTIALS_PER_MINUTE: wrong })).toThrow(
      "environment variable VIV_WRONG_CREDENTIALS_PER_MINUTE: must be a whole number from 0 to 1000000",
    );
});

test("the operator sets the sizes of volumes, of which the usual one is at most the largest", () => {
  expect(read({}).volumeSizes).toEqual({ usualGb: 1, maxGb: 10, orgGb: 100 });
  const set = { VIV_VOLUME_GB: "5", VIV_VOLUME_MAX_GB: "50", VIV_ORG_VOLUME_GB: "0" };
  expect(read(set).volumeSizes).toEqual({ usualGb: 5, maxGb: 50, orgGb: 0 });
  for (const wrong of ["0", "1025", "1.5", ""])
    expect(() => read({ VIV_VOLUME_MAX_GB: wrong })).toThrow("VIV_VOLUME_MAX_GB: must be a whole number");
  expect(() => read({ VIV_VOLUME_GB: "11" })).toThrow(
    "environment variable VIV_VOLUME_GB: must be at most VIV_VOLUME_MAX_GB, which is 10",
  );
});

test("the operator sets how many children a fork may have, up to a fixed limit", () => {
  expect(read({}).forkChildren).toBe(LIMITS.forkChildrenDefault);
  for (const count of [1, LIMITS.forkChildrenHard])
    expect(read({ VIV_FORK_CHILDREN: String(count) }).forkChildren).toBe(count);
  for (const wrong of ["0", String(LIMITS.forkChildrenHard + 1), "-1", "1.5", "many", ""])
    expect(() => read({ VIV_FORK_CHILDREN: wrong })).toThrow(
      "environment variable VIV_FORK_CHILDREN: must be a whole number from 1 to 16",
    );
});

test("objects are kept in a directory, or in the bucket that is named", () => {
  expect(read({ VIV_DATA_DIR: "/data" }).objects).toEqual({ dir: "/data/objects" });
  expect(read({ VIV_OBJECTS_DIR: "/elsewhere" }).objects).toEqual({ dir: "/elsewhere" });
  const bucket = { VIV_OBJECTS: "s3://bucket/a", AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "secret" };
  expect(read(bucket).objects).toMatchObject({ s3: { bucket: "bucket", prefix: "a/" } });
  expect(() => read({ ...bucket, VIV_OBJECTS_DIR: "/elsewhere" })).toThrow(
    "environment variables VIV_OBJECTS and VIV_OBJECTS_DIR: set one of them",
  );
  expect(() => read({ VIV_OBJECTS: "bucket" })).toThrow("environment variable VIV_OBJECTS: must be a bucket");
  expect(() => read({ VIV_OBJECTS: "s3://bucket" })).toThrow(
    "environment variable VIV_OBJECTS: a bucket needs",
  );
});
