import { expect, test } from "vitest";
import { childEnvOf, withoutSecrets } from "./child-env.ts";
import { layoutOf } from "./layout.ts";

const facts = {
  layout: layoutOf("/data"),
  listen: "127.0.0.1:1",
  controlUser: "vivarium",
  gatewayUser: "vivarium-gateway",
};

test("processes of the service meet where the data directory has its sockets, and give up their rights", () => {
  expect(childEnvOf({ childEnv: {} }, facts)).toMatchObject({
    VIV_NODE_SOCKET: "/data/run/node.sock",
    VIV_GATEWAY_SOCKET: "/data/run/gateway.sock",
    VIV_CONTROL_USER: "vivarium",
    VIV_GATEWAY_USER: "vivarium-gateway",
  });
});

test("the environment is passed on, except for values that options set", () => {
  const set = {
    VIV_NODE_SOCKET: "/elsewhere/node.sock",
    VIV_GATEWAY_SOCKET: "/elsewhere/gateway.sock",
    VIV_CONTROL_USER: "",
    VIV_GATEWAY_USER: "nobody",
    VIV_ACCEL: "tcg",
  };
  const childEnv = { ...set, VIV_LISTEN: "x:2", VIV_DATA_DIR: "data", VIV_IMAGES_DIR: "images" };
  expect(childEnvOf({ childEnv }, facts)).toMatchObject({
    ...set,
    VIV_LISTEN: "127.0.0.1:1",
    VIV_DATA_DIR: "/data",
    VIV_IMAGES_DIR: "/data/pool/images",
  });
});

test("a socket that is set to nothing is the usual one", () => {
  const childEnv = { VIV_NODE_SOCKET: "", VIV_GATEWAY_SOCKET: "" };
  expect(childEnvOf({ childEnv }, facts)).toMatchObject({
    VIV_NODE_SOCKET: "/data/run/node.sock",
    VIV_GATEWAY_SOCKET: "/data/run/gateway.sock",
  });
});

test("control is alone on the built-in database; for another database the setting decides", () => {
  const of = (childEnv: Record<string, string>, databaseUrl?: string) =>
    childEnvOf({ childEnv, databaseUrl }, facts).VIV_SOLE_CONTROL;
  expect(of({})).toBe("1");
  expect(of({}, "postgres://db")).toBe("0");
  expect(of({ VIV_SOLE_CONTROL: "1" }, "postgres://db")).toBe("1");
});

test("only control gets keys and the credential of the bucket", () => {
  const secrets = {
    VIV_KEK: "k",
    VIV_KEK_FILE: "/kek",
    VIV_OBJECTS: "s3://bucket",
    VIV_OBJECTS_CREDENTIALS_FILE: "/credentials",
    AWS_ACCESS_KEY_ID: "id",
    AWS_SECRET_ACCESS_KEY: "secret",
    AWS_SESSION_TOKEN: "token",
  };
  const others = { VIV_LISTEN: "x:1", PATH: "/bin" };
  expect(withoutSecrets({ ...secrets, ...others })).toEqual(others);
});
