/** Refuses a saved state whose CPU or accelerator this host does not have, before QEMU starts. */
import { lookAtKvm } from "../host/kvm.ts";
import { NodeError } from "../node-error.ts";
import { LACKS_MODEL, whyUnfit } from "../qemu/cpu-model.ts";
import { describeHostCpu, type HostCpu } from "../qemu/host-cpu.ts";
import type { Manifest } from "./manifest.ts";

let hostCpu: HostCpu | undefined;

/** The CPU is read once: with many processors, reading their description takes milliseconds. */
const HERE = { cpu: () => (hostCpu ??= describeHostCpu()), kvm: lookAtKvm };

/** The files are whole and stay as they are: on a host that fits, the state continues. */
export function assertFits(
  { accelerator, cpu }: Pick<Manifest, "accelerator" | "cpu">,
  here: typeof HERE = HERE,
): void {
  const why = (cpu && whyUnfit(accelerator, cpu, here.cpu())) ?? whyNoKvm(accelerator, here);
  if (why !== undefined) throw unfit(why);
}

/** QEMU alone knows what the models of its own consist of: if it refuses one, the state does not fit either. */
export function explainRefusal(
  { accelerator, cpu }: Pick<Manifest, "accelerator" | "cpu">,
  refusal: Error,
  here: typeof HERE = HERE,
): Error {
  if (cpu === undefined || !LACKS_MODEL.test(refusal.message)) return refusal;
  const said = refusal.message.split("\n").find((line) => LACKS_MODEL.test(line));
  return unfit(
    `it was made with ${accelerator} and the CPU model ${cpu.model}; this host's CPU is ${here.cpu().name} (${said})`,
    refusal,
  );
}

const unfit = (why: string, cause?: Error) =>
  new NodeError("snapshot_unfit", `the saved state does not continue on this host: ${why}`, { cause });

function whyNoKvm(accelerator: Manifest["accelerator"], { kvm }: typeof HERE): string | undefined {
  const found = accelerator === "kvm" ? kvm() : undefined;
  return found && "why" in found ? `it was made with KVM; ${found.why}` : undefined;
}
