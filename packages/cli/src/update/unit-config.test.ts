import { expect, test } from "vitest";
import { readConfig } from "../config.ts";
import { checkedConfigOfUnit, configOfUnit } from "./unit-config.ts";

const caller = readConfig({
  PATH: "/bin",
  DATABASE_URL: "postgres://another@app/data",
  VIV_CONTROL_USER: "somebody",
  VIV_IMAGES_DIR: "/elsewhere",
  VIV_DATA_DIR: "/data",
});

test("the settings file alone says the database and the settings of a unit, whatever the caller's shell has", () => {
  const none = configOfUnit(caller, { dataDir: "/data", settings: undefined });
  expect(none).toMatchObject({ dataDir: "/data", databaseUrl: undefined, imagesDir: undefined });
  expect(none.childEnv).toEqual({ PATH: "/bin" });
  const settings = "DATABASE_URL=postgres://own/data\nVIV_CONTROL_USER=own\nVIV_IMAGES_DIR=/images\n";
  const own = configOfUnit(caller, { dataDir: "/data", settings });
  expect(own).toMatchObject({ databaseUrl: "postgres://own/data", imagesDir: "/images" });
  expect(own.childEnv).toMatchObject({ PATH: "/bin", VIV_CONTROL_USER: "own" });
});

test("the credential of a unit's bucket is in its settings file alone", () => {
  const shell = readConfig({ VIV_OBJECTS: "s3://x", AWS_ACCESS_KEY_ID: "of the shell", PATH: "/bin" });
  const settings = "VIV_OBJECTS=s3://bucket\nAWS_ACCESS_KEY_ID=own\nAWS_PROFILE=p\n";
  const { childEnv } = configOfUnit(shell, { dataDir: "/data", settings });
  expect(childEnv).toEqual({ PATH: "/bin", VIV_OBJECTS: "s3://bucket", AWS_ACCESS_KEY_ID: "own" });
  expect(configOfUnit(shell, { dataDir: "/data", settings: "" }).childEnv).toEqual({ PATH: "/bin" });
});

test.each([
  ["# open\nVIV_PRIVATE_OPEN=10.1.2.3:443\n\nVIV_PRIVATE_OPEN=8.8.8.8:443\n", 4, "VIV_PRIVATE_OPEN names"],
  ["VIV_GUEST_SETTINGS=guest.json\n", 1, "expected an absolute path"],
  ["A=1\nVIV_LISTEN=nowhere\n", 2, 'VIV_LISTEN is "nowhere"'],
])(
  "a setting with which the unit would not start is refused with its line: %j",
  async (settings, line, why) => {
    const settingsFile = "/etc/vivarium/vivarium.env";
    const check = checkedConfigOfUnit(caller, { dataDir: "/data", settings, settingsFile });
    await expect(check).rejects.toThrow(`${settingsFile}, line ${line}: `);
    await expect(check).rejects.toThrow(why);
  },
);

test("settings that span lines are read as systemd reads them", async () => {
  const settings = "VIV_PRIVATE_OPEN=10.1.2.3:443,\\\n10.2.0.0/24:8080\n";
  const { childEnv } = await checkedConfigOfUnit(caller, { dataDir: "/data", settings, settingsFile: "f" });
  expect(childEnv.VIV_PRIVATE_OPEN).toBe("10.1.2.3:443,10.2.0.0/24:8080");
});
