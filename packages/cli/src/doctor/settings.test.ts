import { expect, test } from "vitest";
import { readConfig } from "../config.ts";
import { checkServiceSettings, configInForce } from "./settings.ts";

test("settings with which the service does not start are a failure that names their file and the setting", async () => {
  const file = "/etc/vivarium/vivarium.env";
  expect(await checkServiceSettings({ childEnv: {} }, file)).toMatchObject({ status: "ok" });
  const broken = { childEnv: { VIV_PRIVATE_OPEN: "8.8.8.8:443" } };
  expect(await checkServiceSettings(broken, file)).toMatchObject({
    status: "fail",
    found: expect.stringMatching(/^\/etc\/vivarium\/vivarium\.env: VIV_PRIVATE_OPEN/),
  });
});

test("the settings of the unit that has the data directory count, and not the environment's", async () => {
  const caller = readConfig({ VIV_ACCEL: "tcg", VIV_DATA_DIR: "/data", DATABASE_URL: "postgres://other" });
  const file = "/etc/vivarium/vivarium.env";
  const settings = { VIV_PRIVATE_OPEN: "10.1.2.3:443", VIV_IMAGES_DIR: "/images" };
  const unit = { name: "vivarium", unitFile: "", settingsFile: file, dataDir: "/data", settings };
  const found = await configInForce(caller, async () => [unit]);
  expect(found).toMatchObject({ file, config: { childEnv: settings, imagesDir: "/images" } });
  expect(found.config.childEnv).not.toHaveProperty("VIV_ACCEL");
  expect(found.config.databaseUrl).toBeUndefined();
});

test("without a unit the environment counts", async () => {
  const config = readConfig({ VIV_ACCEL: "tcg", VIV_DATA_DIR: "/nowhere" });
  expect(await configInForce(config)).toEqual({ config });
});
