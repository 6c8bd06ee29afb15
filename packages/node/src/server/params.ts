/** Checks parameters, headers and bodies of requests. */
import type { IncomingHttpHeaders } from "node:http";
import {
  ArchiveSecretText,
  BuildId,
  MachineId,
  SnapshotId,
  STATE_KEY_HEADER,
  VolumeId,
} from "@vivarium/contract/node";
import { z } from "zod";
import { NodeError } from "../node-error.ts";
import { StateKey } from "../snapshots/state-key.ts";

const MachineParams = z.object({ machine_id: MachineId });
const SnapshotParams = z.object({ snapshot_id: SnapshotId });

export function machineId(params: unknown): string {
  const parsed = MachineParams.safeParse(params);
  if (!parsed.success) throw new NodeError("machine_not_found", "no machine of this name on this node");
  return parsed.data.machine_id;
}

export function snapshotId(params: unknown): string {
  const parsed = SnapshotParams.safeParse(params);
  if (!parsed.success) throw new NodeError("snapshot_not_found", "no snapshot of this name on this node");
  return parsed.data.snapshot_id;
}

export function volumeId(params: unknown): string {
  const parsed = z.object({ volume_id: VolumeId }).safeParse(params);
  if (!parsed.success) throw new NodeError("volume_not_found", "no volume of this name on this node");
  return parsed.data.volume_id;
}

export function buildId(params: unknown): string {
  const parsed = z.object({ build_id: BuildId }).safeParse(params);
  if (!parsed.success) throw new NodeError("build_not_found", "no build of this name on this node");
  return parsed.data.build_id;
}

/** The call's state key, if it brings one. */
export function stateKey(headers: IncomingHttpHeaders): StateKey | undefined {
  const text = headers[STATE_KEY_HEADER];
  return text === undefined ? undefined : StateKey.parse(text);
}

/** A key that the call must bring. The refusal does not repeat it. */
export function archiveSecret(headers: IncomingHttpHeaders, name: string): string {
  const parsed = ArchiveSecretText.safeParse(headers[name]);
  if (parsed.success) return parsed.data;
  throw new NodeError("invalid", `the header ${name} does not fit the contract`);
}

export function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new NodeError("invalid", `${issue?.path.join(".") || "body"}: ${issue?.message ?? "does not fit"}`);
}
