/** Volumes of the fake node: sizes and holders. Nothing is mounted in a guest. */
import { VolumeId, VolumeSpec, type VolumeStatus } from "@vivarium/contract/node";
import type { FakeMachine } from "./machine.ts";
import { Refusal, valid } from "./refusal.ts";
import type { NodeState } from "./state.ts";

export interface FakeVolume {
  volume_id: string;
  size_gb: number;
  machine_id?: string | undefined;
}

export function volumeId(id: string): string {
  if (VolumeId.safeParse(id).success) return id;
  throw new Refusal("volume_not_found", "no volume of this name on this node");
}

const statusOf = (volume: FakeVolume): VolumeStatus => ({ ...volume, bytes: 1_000_000 });

const held = ({ volume_id, machine_id }: FakeVolume) =>
  new Refusal("volume_held", `volume ${volume_id} is attached to machine ${machine_id}`);

export async function putVolume(state: NodeState, id: string, body: unknown): Promise<VolumeStatus> {
  const { size_gb } = valid(VolumeSpec.safeParse(body));
  await state.onVolume(id);
  const known = state.volumes.get(id);
  if (known && known.size_gb >= size_gb) return statusOf(known);
  if (known?.machine_id) throw held(known);
  const volume = { volume_id: id, size_gb };
  state.volumes.set(id, volume);
  return statusOf(volume);
}

export function listVolumes({ volumes }: NodeState): VolumeStatus[] {
  return [...volumes.values()].map(statusOf);
}

export async function deleteVolume(state: NodeState, id: string): Promise<void> {
  await state.onVolume(id);
  const volume = state.volumes.get(id);
  if (volume?.machine_id) throw held(volume);
  state.volumes.delete(id);
}

/** Gives a machine that is about to run its volume. */
export function holdVolume({ volumes }: NodeState, { machine_id, spec }: FakeMachine): void {
  if (!spec.volume) return;
  const volume = volumes.get(spec.volume.volume_id);
  if (!volume) throw new Refusal("volume_not_found", `no volume ${spec.volume.volume_id} on this node`);
  if (volume.machine_id !== undefined && volume.machine_id !== machine_id) throw held(volume);
  volume.machine_id = machine_id;
  volume.size_gb = Math.max(volume.size_gb, spec.volume.size_gb);
}

export function releaseVolumes({ volumes }: NodeState, machineId: string): void {
  for (const volume of volumes.values()) if (volume.machine_id === machineId) volume.machine_id = undefined;
}
