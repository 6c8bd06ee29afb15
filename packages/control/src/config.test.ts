import { LIMITS } from "@vivarium/contract/api";
import { expect, test } from "vitest";
import { readConfig } from "./config.ts";

const read = (more: NodeJS.ProcessEnv) => readConfig({ DATABASE_URL: "postgres://db", ...more });

test("one address is listened on, also under the name that stands for two", () => {
  expect(read({ VIV_LISTEN: "localhost:7400" }).listen).toEqual({ host: "127.0.0.1", port: 7400 });
  expect(read({ VIV_LISTEN: "[::1]:7400" }).listen).toEqual({ host: "::1", port: 7400 });
});

test("a value that cannot be used is refused by its name", () => {
  expect(() => readConfig({})).toThrow("environment variable DATABASE_URL: is required");
  expect(() => read({ VIV_LISTEN: "7400" })).toThrow("environment variable VIV_LISTEN: must be host:port");
  expect(() => read({ VIV_LISTEN: "x:70000" })).toThrow("the port must be at most 65535, got 70000");
});

test("others may serve the database as well, unless it is said that none does", () => {
  expect(read({}).isAlone).toBe(false);
  expect(read({ VIV_SOLE_CONTROL: "1" }).isAlone).toBe(true);
});

test("how many children a fork may have is the operator's word, within the bound of every service", () => {
  expect(read({}).forkChildren).toBe(LIMITS.forkChildrenDefault);
  for (const count of [1, LIMITS.forkChildrenHard])
    expect(read({ VIV_FORK_CHILDREN: String(count) }).forkChildren).toBe(count);
  for (const wrong of ["0", String(LIMITS.forkChildrenHard + 1), "-1", "1.5", "many", ""])
    expect(() => read({ VIV_FORK_CHILDREN: wrong })).toThrow(
      "environment variable VIV_FORK_CHILDREN: must be a whole number from 1 to 16",
    );
});
