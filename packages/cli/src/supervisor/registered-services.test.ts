import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import { randomId } from "@vivarium/kit/id";
import { expect, it, onTestFinished } from "vitest";
import { registerService } from "./registered-services.ts";

async function makeTable() {
  const dir = await mkdtemp(path.join(tmpdir(), "slots-"));
  const table = ["inet", `vt_${randomId(8)}`];
  onTestFinished(async () => {
    await rm(dir, { recursive: true });
    await runHostCommand("nft", ["delete", "table", ...table]);
  });
  await runHostCommand("nft", ["add", "table", ...table]);
  return {
    dir,
    exists: async () => (await runHostCommand("nft", ["list", "table", ...table])).code === 0,
    hold: () =>
      registerService("http://it", {
        ...{ slotsDir: dir, servicesDir: path.join(dir, "s"), table },
        // None of this host, whose machines would end with it.
        unit: `${table[1]}.service`,
      }),
  };
}

it("removes the table once no service of this host has a slot", async () => {
  const { dir, exists, hold } = await makeTable();
  await writeFile(path.join(dir, "7"), "/another/service");
  await (await hold())();
  expect(await exists()).toBe(true);
  await rm(path.join(dir, "7"));
  await writeFile(path.join(dir, ".41-unnamed"), "");
  await (await hold())();
  expect(await exists()).toBe(false);
});

it("leaves the table to a service that runs, also while it has no slot yet, and not to one that died", async () => {
  const { dir, exists, hold } = await makeTable();
  const [leave, leaveOther] = [await hold(), await hold()];
  await writeFile(
    path.join(dir, "s", "dead"),
    JSON.stringify({ pid: 2 ** 22, startTicks: 1, bootId: "x", url: "" }),
  );
  await leave();
  expect(await exists()).toBe(true);
  await leaveOther();
  expect(await exists()).toBe(false);
  // Nothing of the dead service is kept either.
  expect(await readdir(path.join(dir, "s"))).toEqual([]);
});
