/**
 * Command that bakes a baseline: boots a template once, runs common programs in it, and captures the machine.
 * Usage: bake.ts --images-dir DIR --data-dir DIR --template base [--version V] --size small
 */
import { realpath } from "node:fs/promises";
import path from "node:path";
import { parseArgs } from "node:util";
import { isSize, SIZE_NAMES } from "@vivarium/contract/api/limits";
import { readConfig } from "./config.ts";
import { openCgroups } from "./host/cgroup.ts";
import { claimSlots } from "./host/claims.ts";
import { discardSlot } from "./host/discard-slot.ts";
import { chooseAccelerators } from "./host/kvm.ts";
import { prepareQemuRoot } from "./host/qemu-root.ts";
import { bakeOwner, isHostUsed, slotsOf } from "./host/slots.ts";
import { bakeBaseline } from "./snapshots/bake.ts";
import { pruneVersions } from "./snapshots/prune-versions.ts";

const { values } = parseArgs({
  options: {
    "images-dir": { type: "string" },
    "data-dir": { type: "string" },
    template: { type: "string", default: "base" },
    version: { type: "string", default: "current" },
    size: { type: "string", default: "small" },
  },
});
const config = readConfig(process.env);
const dataDir = path.resolve(values["data-dir"] ?? config.dataDir);
const imagesDir = path.resolve(values["images-dir"] ?? config.imagesDir);
const size = values.size;
if (!isSize(size)) throw new Error(`--size is "${size}"; expected one of ${SIZE_NAMES.join(", ")}`);

const accelerators = chooseAccelerators(config.accelerator);
const owner = bakeOwner(dataDir);
await claimSlots(owner);
const cgroups = await openCgroups();
// Those of an earlier bake that was cut off.
for (const stale of await slotsOf(owner)) await discardSlot(cgroups, stale);
try {
  await bakeBaseline({
    qemu: await prepareQemuRoot(dataDir),
    cgroups,
    progress: (line) => process.stdout.write(`  ${line}\n`),
    owner,
    imagesDir,
    template: values.template,
    folder: await realpath(path.join(imagesDir, "templates", values.template, values.version)),
    size,
    accelerators,
    cpuModel: config.cpuModel,
  });
} finally {
  if (!(await isHostUsed(owner))) await cgroups.release();
}
for (const version of await pruneVersions(imagesDir))
  process.stdout.write(`  removed ${version}, an old version that nothing here was made from\n`);
process.exit(0);
