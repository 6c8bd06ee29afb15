import { expect, test } from "vitest";
import { readConfig, withOptions } from "./config.ts";

test("has defaults that fit a local service", () => {
  expect(readConfig({})).toMatchObject({
    url: "http://127.0.0.1:7400",
    listen: "127.0.0.1:7400",
    dataDir: "/var/lib/vivarium",
  });
});

test("options win over the environment", () => {
  const config = readConfig({ VIV_URL: "http://a:1/", VIV_DATA_DIR: "/d", VIV_LISTEN: "[::1]:80" });
  expect(config).toMatchObject({ url: "http://a:1", dataDir: "/d", listen: "[::1]:80" });
  expect(withOptions(config, { listen: "b:2" })).toMatchObject({ url: "http://a:1", listen: "b:2" });
  expect(withOptions(config, { url: "https://b" })).toMatchObject({ url: "https://b", dataDir: "/d" });
});

test.each(["127.0.0.1:7400", "ftp://a", "x"])("refuses the URL %s and says which setting it is", (url) => {
  expect(() => readConfig({ VIV_URL: url })).toThrow(`VIV_URL is "${url}"`);
});

test.each(["7400", "a:0", "http://a:1"])("refuses to listen at %s and says which setting it is", (listen) => {
  expect(() => readConfig({ VIV_LISTEN: listen })).toThrow(`VIV_LISTEN is "${listen}". Expected HOST:PORT`);
});

test("children get our settings, but neither the key nor unrelated variables", () => {
  const env = { VIV_API_KEY: "viv_x", VIV_ACCEL: "tcg", PATH: "/bin", AWS_SECRET: "s", DATABASE_URL: "p" };
  expect(readConfig(env).childEnv).toEqual({ VIV_ACCEL: "tcg", PATH: "/bin" });
});

test("the credential of a bucket is a setting of the service if there is a bucket", () => {
  const keys = { AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "s", AWS_SESSION_TOKEN: "t" };
  expect(readConfig({ ...keys, AWS_PROFILE: "p" }).childEnv).toEqual({});
  const withBucket = { ...keys, VIV_OBJECTS: "s3://bucket" };
  expect(readConfig({ ...withBucket, AWS_PROFILE: "p" }).childEnv).toEqual(withBucket);
});

test("colours can be declined, and a dumb terminal has neither colours nor a screen", () => {
  expect(readConfig({ TERM: "xterm" })).toMatchObject({ wantsColour: true, canDraw: true });
  expect(readConfig({ TERM: "xterm", NO_COLOR: "1" })).toMatchObject({ wantsColour: false, canDraw: true });
  expect(readConfig({ TERM: "dumb" })).toMatchObject({ wantsColour: false, canDraw: false });
});

test.skipIf(process.platform === "darwin")("there is a browser where there is a screen", () => {
  expect(readConfig({ DISPLAY: ":0" }).browser).toBe("xdg-open");
  expect(readConfig({ WAYLAND_DISPLAY: "wayland-0" }).browser).toBe("xdg-open");
  expect(readConfig({ DISPLAY: "" }).browser).toBeUndefined();
});
