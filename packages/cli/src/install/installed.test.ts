import { mkdir, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { checkFree, type Installed, parseUnitName, placesOf } from "./installed.ts";

inOwnDirectories();

const first: Installed = {
  name: "vivarium",
  ...placesOf("vivarium"),
  dataDir: "/var/lib/vivarium",
  settings: {},
};
const second = {
  name: "second",
  dataDir: "/srv/second",
  settings: { VIV_LISTEN: "127.0.0.1:7500", VIV_INGRESS_LISTEN: "127.0.0.1:7501" },
};

test("a second service with a name, a data directory and addresses of its own is free", () => {
  checkFree(second, [first], false);
  checkFree({ ...first }, [first], false);
});

test.each([
  ["a name that serves another directory", { ...second, name: "vivarium" }, "serves /var/lib/vivarium, not"],
  [
    "a data directory of another unit",
    { ...second, dataDir: "/var/lib/vivarium" },
    "vivarium.service serves",
  ],
  ["the address of another unit", { ...second, settings: {} }, "vivarium.service listens at 127.0.0.1:7400"],
  [
    "the previews' address of another unit",
    { ...second, settings: { ...second.settings, VIV_INGRESS_LISTEN: "127.0.0.1:7401" } },
    "vivarium.service listens at 127.0.0.1:7401",
  ],
  [
    "an address of all, which includes that of another unit",
    { ...second, settings: { ...second.settings, VIV_LISTEN: "0.0.0.0:7400" } },
    "vivarium.service listens at 127.0.0.1:7400, and 0.0.0.0:7400 has the same port there",
  ],
  [
    "one port for both, at an address that includes the other",
    { ...second, settings: { VIV_LISTEN: "[::]:7500", VIV_INGRESS_LISTEN: "127.0.0.1:7500" } },
    "have one port",
  ],
  ["the name of a unit that runs updates", { ...second, name: "vivarium-update" }, "end in -update"],
  [
    "one address for both",
    { ...second, settings: { VIV_LISTEN: "127.0.0.1:7500", VIV_INGRESS_LISTEN: "127.0.0.1:7500" } },
    "both addresses are",
  ],
] as const)("%s is refused", (_what, wanted, message) => {
  expect(() => checkFree(wanted, [first], false)).toThrow(message);
});

test("a unit file of somebody else is left alone", () => {
  expect(() => checkFree(second, [], true)).toThrow("was not written by viv install");
});

test.each(["", "Vivarium", "a b", "a/b", "-a", "vivarium-machines", "a.service"])("%j is no name", (name) => {
  expect(() => parseUnitName(name)).toThrow("--name is");
});

test("a data directory that another unit has by a link is refused", async () => {
  await mkdir(path.join(dir, "real"));
  await symlink(path.join(dir, "real"), path.join(dir, "link"));
  const other = { ...first, dataDir: path.join(dir, "real") };
  expect(() => checkFree({ ...second, dataDir: path.join(dir, "link") }, [other], false)).toThrow(
    `vivarium.service serves ${path.join(dir, "link")} already`,
  );
});

test.each([
  [
    "of a package",
    "LoadState=loaded\nFragmentPath=/lib/systemd/system/second.service\n",
    "/lib/systemd/system",
  ],
  ["that is masked", "LoadState=masked\nFragmentPath=\n", "systemd has a second.service"],
])("the name of a unit %s is refused", async (_which, text, message) => {
  await fakeSystemctl(text);
  expect(() => checkFree(second, [first], false)).toThrow(message);
});

test.each([
  "LoadState=not-found\nFragmentPath=\n",
  "LoadState=loaded\nFragmentPath=/etc/systemd/system/second.service\n",
])("a name that systemd does not know, or has from our file, is free (%j)", async (text) => {
  await fakeSystemctl(text);
  checkFree(second, [first], false);
});

async function fakeSystemctl(text: string): Promise<void> {
  await writeFile(path.join(dir, "said"), text);
  await writeFile(path.join(dir, "systemctl"), `#!/bin/sh\nexec cat ${dir}/said\n`, { mode: 0o755 });
  vi.stubEnv("PATH", `${dir}:${process.env.PATH}`);
  onTestFinished(() => void vi.unstubAllEnvs());
}
