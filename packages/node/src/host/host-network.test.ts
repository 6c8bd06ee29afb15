import { expect, it } from "vitest";
import { hostTable, withoutTimeouts } from "./host-network.ts";
import { run } from "./run.ts";

const APPLY_TWICE =
  't=$(cat); for turn in 1 2; do echo "$t" | nft -f - || exit; done; nft list table inet vivarium';
const TABLE = hostTable(
  { never: ["10.0.0.0/8"], resolvers: ["9.9.9.9"], systemResolvers: ["9.9.9.9", "127.0.0.53"] },
  64_000,
);

it.each([
  ["whole", TABLE, true],
  ["without what some kernels lack", withoutTimeouts(TABLE), false],
])("the host's table is understood %s, also a second time", async (_name, table, hasTimeouts) => {
  const listed = await run("unshare", ["--net", "sh", "-c", APPLY_TWICE], { input: table });
  expect(listed.includes("ct timeout")).toBe(hasTimeouts);
  expect(listed).toContain("ct count over");
});
