import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { checkPrivateOpen, findingOf, openingsIn } from "./private-open.ts";

test("what is open to sessions is listed", () => {
  expect(findingOf([])).toEqual({
    name: "private addresses",
    status: "ok",
    found: "none is open to sessions",
  });
  expect(
    findingOf([
      { range: "10.1.2.3/32", port: 443 },
      { range: "10.2.0.0/16", port: 8080 },
    ]),
  ).toMatchObject({ status: "ok", found: "open to sessions: 10.1.2.3:443, 10.2.0.0/16:8080" });
});

test("a wide range is a warning with the number of its addresses", () => {
  expect(findingOf([{ range: "172.16.0.0/12", port: 443 }])).toMatchObject({
    status: "warn",
    cost: expect.stringContaining("1,048,576 private addresses"),
  });
});

test("a setting with which the service does not start is a failure", async () => {
  expect(await checkPrivateOpen({ childEnv: { VIV_PRIVATE_OPEN: "10.1.2.3" } })).toMatchObject({
    status: "fail",
    found: expect.stringContaining("which has no port"),
  });
});

test("an opening with the address of the service's object store is a failure", async () => {
  const childEnv = {
    VIV_PRIVATE_OPEN: "10.7.0.0/24:9000",
    VIV_OBJECTS: "s3://bucket",
    VIV_OBJECTS_ENDPOINT: "http://10.7.0.9:9000",
    AWS_ACCESS_KEY_ID: "id",
    AWS_SECRET_ACCESS_KEY: "key",
  };
  expect(await checkPrivateOpen({ childEnv })).toMatchObject({
    status: "fail",
    found: expect.stringContaining("opens 10.7.0.9:9000, where this service has its object store"),
  });
});

test("what a running service has opened is read from its table", () => {
  const set = "table inet vivarium { set open4 { type ipv4_addr . inet_service; flags interval; }; }";
  const elements = "add element inet vivarium open4 { 10.1.2.3 . 443, 10.2.0.0/24 . 8080, 10.2.0.2/31 . 80 }";
  const script = `nft '${set}'; nft '${elements}'; nft list set inet vivarium open4`;
  const printed = execFileSync("unshare", ["--net", "sh", "-ec", script], { encoding: "utf8" });
  const read = openingsIn(printed);
  expect(read).toHaveLength(3);
  expect(read).toEqual(
    expect.arrayContaining([
      { range: "10.1.2.3/32", port: 443 },
      { range: "10.2.0.0/24", port: 8080 },
      { range: "10.2.0.2/31", port: 80 },
    ]),
  );
  const empty = execFileSync(
    "unshare",
    ["--net", "sh", "-ec", `nft '${set}'; nft list set inet vivarium open4`],
    {
      encoding: "utf8",
    },
  );
  expect(openingsIn(empty)).toEqual([]);
});
