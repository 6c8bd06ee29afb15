/** Checks the database, the node, its base image and its disk. */
import { type CheckResult, DEFAULT_SIZE, type Health } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { readLeaseTime } from "../db/time.ts";
import { ApiError } from "../errors/api-error.ts";
import { baselinesFor } from "../fleet/baselines.ts";
import { BASE_TEMPLATE } from "../templates/official.ts";
import type { ServiceDeps } from "./deps.ts";

/** Time limit of each check, because the whole answer must come within a second. */
const CHECK_MS = 800;
const DISK_WARN_SHARE = 0.1;
const DISK_FAIL_SHARE = 0.02;

export async function checkHealth(deps: ServiceDeps): Promise<Health> {
  const [storeTime, info] = await Promise.all([
    inTime(readLeaseTime(deps.db)),
    inTime(deps.node.refresh(AbortSignal.timeout(CHECK_MS))),
  ]);
  if (!storeTime) throw new ApiError("unavailable", "the catalog database does not answer");
  if (!info) throw new ApiError("unavailable", "the node that runs machines does not answer");
  const checks: Health["checks"] = {
    store: "ok",
    runtime: info.limits_refused ? "fail" : "ok",
    images: imagesCheck(info),
    disk: diskCheck(info),
    secrets_key: deps.keyring.current ? "ok" : "off",
    cold_tier: deps.hasArchives && deps.keyring.current ? "ok" : "off",
  };
  const isWell = Object.values(checks).every((check) => check === "ok" || check === "off");
  const { isolation, emulated_states } = info;
  const status = isWell ? "ok" : "degraded";
  return { status, version: deps.version, isolation, emulated_states, checks };
}

/** The result, or undefined after a failure or `CHECK_MS`. */
async function inTime<T>(work: Promise<T>): Promise<T | undefined> {
  const over = new AbortController();
  const late = sleep(CHECK_MS, over.signal).then(() => undefined);
  return await Promise.race([work.catch(() => undefined), late]).finally(() => over.abort());
}

/** Whether a create without template and size finds a baseline. */
function imagesCheck(info: NodeInfo): CheckResult {
  return baselinesFor(info, BASE_TEMPLATE).some(({ size }) => size === DEFAULT_SIZE) ? "ok" : "fail";
}

function diskCheck({ disk, reflink }: NodeInfo): CheckResult {
  const freeShare = disk.total_bytes > 0 ? disk.free_bytes / disk.total_bytes : 1;
  if (freeShare < DISK_FAIL_SHARE) return "fail";
  return freeShare < DISK_WARN_SHARE || !reflink ? "warn" : "ok";
}
