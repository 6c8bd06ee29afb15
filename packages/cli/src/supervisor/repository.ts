/** Paths of the programs in this repository that the supervisor starts. */
import path from "node:path";

/** The checkout. */
export const ROOT = path.join(import.meta.dirname, "../../../..");

export const ENTRY_POINTS = {
  cli: path.join(ROOT, "packages/cli/src/main.ts"),
  node: path.join(ROOT, "packages/node/src/main.ts"),
  gateway: path.join(ROOT, "packages/gateway/src/main.ts"),
  control: path.join(ROOT, "packages/control/src/main.ts"),
  backup: path.join(ROOT, "packages/control/src/backup.ts"),
  storageOfControl: path.join(ROOT, "packages/control/src/storage.ts"),
  storageOfNode: path.join(ROOT, "packages/node/src/storage.ts"),
} as const;

export const MOUNT_POOL = path.join(ROOT, "scripts/mount-pool");
export const REQUIRE_DATA = path.join(ROOT, "scripts/require-data");
