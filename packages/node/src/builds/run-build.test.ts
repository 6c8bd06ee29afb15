import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { GIB } from "@vivarium/kit/sizes";
import { RegistryError } from "@vivarium/oci/registry-error";
import { afterEach, beforeEach, expect, it } from "vitest";
import { NodeError } from "../node-error.ts";
import type { Build } from "./build.ts";
import { BuildLog } from "./build-log.ts";
import type { BuildDeps } from "./deps.ts";
import { runBuild } from "./run-build.ts";

let dir: string;
let build: Build;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "build-"));
  build = {
    ...{
      dir,
      log: await BuildLog.open(dir),
      credential: undefined,
      image: undefined,
      over: new AbortController(),
    },
    spec: { reference: "registry.example.com/team/app:1", sizes: ["small", "medium"] },
    status: { build_id: `tpl_${"1".repeat(21)}`, state: "building" },
    work: Promise.resolve(),
  };
});
afterEach(async () => {
  await build.log.flush();
  await rm(dir, { recursive: true, force: true });
});

/** Registries that nobody reaches. */
const dial = () => Promise.reject(new RegistryError("address_refused", "a private address"));

it("reserves the disk and a memory of each size before anything, and gives them back", async () => {
  let reserved = 0;
  const reserve = async (bytes: number) => {
    reserved += bytes;
    return () => {
      reserved -= bytes;
    };
  };
  const seen: number[] = [];
  const look = async () => {
    seen.push(reserved);
    return await dial();
  };
  const run = runBuild({ gate: { reserve }, dial: look } as unknown as BuildDeps, build);
  await expect(run).rejects.toMatchObject({ code: "address_refused" });
  expect(seen[0]).toBe(8 * GIB + 1 * GIB + 4 * GIB);
  expect(reserved).toBe(0);
});

it("does not begin without that space", async () => {
  const full = new NodeError("disk_pressure", "too little free disk");
  const gate = { reserve: () => Promise.reject(full) };
  await expect(runBuild({ gate, dial } as unknown as BuildDeps, build)).rejects.toBe(full);
  expect(existsSync(path.join(dir, "layers"))).toBe(false);
});

it("throws away what an attempt before it has made, and keeps what was pulled", async () => {
  for (const name of ["layers", "unpack", "small", ".medium.tmp"]) await mkdir(path.join(dir, name));
  for (const name of ["root.ext4", "template.json"]) await writeFile(path.join(dir, name), "old");
  const gate = { reserve: async () => () => {} };
  await expect(runBuild({ gate, dial } as unknown as BuildDeps, build)).rejects.toThrow("private");
  await build.log.flush();
  expect((await readdir(dir)).toSorted()).toEqual(["build.json", "layers", "log"]);
});
