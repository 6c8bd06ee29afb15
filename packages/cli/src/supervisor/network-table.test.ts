import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { randomId } from "@vivarium/kit/id";
import { expect, it, onTestFinished } from "vitest";
import { runHostCommand } from "./host-command.ts";
import { removeNetworkTable } from "./network-table.ts";

it("removes the table once no service of this host has a slot", async () => {
  const dir = await mkdtemp(path.join(tmpdir(), "slots-"));
  const table = ["inet", `vt_${randomId(8)}`];
  const exists = async () => (await runHostCommand("nft", ["list", "table", ...table])).code === 0;
  onTestFinished(async () => {
    await rm(dir, { recursive: true });
    await runHostCommand("nft", ["delete", "table", ...table]);
  });
  await runHostCommand("nft", ["add", "table", ...table]);
  await writeFile(path.join(dir, "7"), "/another/service");
  await removeNetworkTable(dir, table);
  expect(await exists()).toBe(true);
  await rm(path.join(dir, "7"));
  await writeFile(path.join(dir, ".41-unnamed"), "");
  await removeNetworkTable(dir, table);
  expect(await exists()).toBe(false);
});
