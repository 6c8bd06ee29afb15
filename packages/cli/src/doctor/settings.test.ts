import { expect, test } from "vitest";
import { checkServiceSettings } from "./settings.ts";

test("settings with which the service does not start are a failure that names their file and the setting", async () => {
  const file = "/etc/vivarium/vivarium.env";
  expect(await checkServiceSettings({ childEnv: {} }, file)).toMatchObject({ status: "ok" });
  const broken = { childEnv: { VIV_PRIVATE_OPEN: "8.8.8.8:443" } };
  expect(await checkServiceSettings(broken, file)).toMatchObject({
    status: "fail",
    found: expect.stringMatching(/^\/etc\/vivarium\/vivarium\.env: VIV_PRIVATE_OPEN/),
  });
});
