/** Pulls from a stand-in, with short waits. */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PULL_LIMITS, type PullLimits } from "../src/limits.ts";
import { type PulledImage, type PullInput, pullImage } from "../src/pull-image.ts";
import { RegistryError } from "../src/registry-error.ts";
import { REPOSITORY } from "./image.ts";
import type { StandIn } from "./stand-in.ts";

export const REGISTRY = "registry.example.com";
export const QUICK_LIMITS: PullLimits = { ...PULL_LIMITS, retryMs: 1 };

export async function withDirectory<T>(work: (directory: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), "oci-"));
  try {
    return await work(directory);
  } finally {
    await rm(directory, { recursive: true });
  }
}

export async function pull(
  standIn: StandIn,
  directory: string,
  { limits, ...input }: Partial<PullInput> = {},
): Promise<PulledImage> {
  const { ca, dial } = standIn;
  const reference = `${REGISTRY}/${REPOSITORY}:1`;
  return await pullImage({
    reference,
    directory,
    ca,
    dial,
    ...input,
    limits: { ...QUICK_LIMITS, ...limits },
  });
}

/** The error of a pull that must fail. */
export async function failureOfPull(
  standIn: StandIn,
  input: Partial<PullInput> = {},
): Promise<RegistryError> {
  try {
    await withDirectory((directory) => pull(standIn, directory, input));
  } catch (error) {
    if (error instanceof RegistryError) return error;
    throw error;
  }
  return assert.fail("the pull did not fail");
}
