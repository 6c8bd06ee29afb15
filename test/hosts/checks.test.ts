/** The checks with a host that only writes down what it is asked. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { CHECKS, toolsFor } from "./checks.ts";
import type { Host, HostDisks } from "./host.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), "hosts-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
});

/** `fails`: commands that fail. `deaths`: how often the host is found dead after a failure. */
function hostThat({ fails, deaths = 0 }: { fails: (command: string) => boolean; deaths?: number }) {
  const asked: string[] = [];
  const host = {
    isOff: false,
    run: async (command: string) => {
      asked.push(command);
      return { code: fails(command) ? 1 : 0, output: `the output of: ${command}` };
    },
    death: async () => (deaths-- > 0 ? "Kernel panic" : undefined),
    boot: async () => void asked.push("boot"),
  };
  const disks: HostDisks = { root: "", disks: [{ file: "" }, { file: "" }], console: "" };
  return { asked, tools: toolsFor({ host: host as unknown as Host, folder, disks }, () => {}) };
}

test("a host that died is booted and gets its pool back before the part runs again", async () => {
  let runs = 0;
  const { asked, tools } = hostThat({
    fails: (command) => command.endsWith("work") && runs++ === 0,
    deaths: 1,
  });
  await tools.part(async () => void (await tools.command("work", 1)));
  const steps = asked.map((command) => command.split(" && ").at(-1));
  expect(steps).toEqual(["work", "boot", expect.stringContaining("scripts/mount-pool"), "work"]);
});

test("a part that fails on a host that lives does not run again", async () => {
  const { asked, tools } = hostThat({ fails: () => true });
  await expect(tools.part(async () => void (await tools.command("work", 1)))).rejects.toThrow("code 1");
  expect(asked).toHaveLength(1);
});

test("the logs of the services of a failed end-to-end file are in the run's folder", async () => {
  const { tools } = hostThat({ fails: (command) => command.includes("vitest") });
  const check = CHECKS.find(({ name }) => name === "e2e-jail");
  await expect(check?.run(tools, 1, 1)).rejects.toThrow("test/e2e/jail.test.ts");
  const kept = readFileSync(path.join(folder, "e2e-jail.logs"), "utf8");
  expect(kept).toContain("/var/lib/vivarium/pool/tests/*/log/*");
});

test("every check has a name of its own and says what it shows", () => {
  const names = CHECKS.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
  for (const name of ["unmounted", "reinstall", "renewal", "uninstall"]) expect(names).toContain(name);
  expect(CHECKS.filter(({ shows }) => shows.length < 10)).toEqual([]);
});
