/**
 * QEMU's command line of a builder: a machine that unpacks one container image and ends. It has two disks and no network
 * device, and is never saved, so nothing depends on its devices.
 */
import { AGENT_PORT_NAME } from "@vivarium/contract/guest";
import { backendArguments, JAIL_PATHS, type MachineShape, machineArguments } from "./arguments.ts";

export interface BuilderBoot {
  /** Those of any machine: the initramfs makes it a builder. */
  kernelArguments: string;
  cpu: string;
}

/** A host without space shows as an error in the guest, which then fails; otherwise it would be stopped. */
const REPORTED = "werror=report,rerror=report";

export function builderArguments(shape: MachineShape, { kernelArguments, cpu }: BuilderBoot): string[] {
  return [
    ...backendArguments(`memory-backend-ram,id=mem,size=${shape.memMb}M`),
    ...diskArguments(),
    ...machineArguments(shape, cpu),
    ...["-device", `virtio-blk-device,drive=target,id=vda,${REPORTED}`],
    ...["-device", `virtio-blk-device,drive=layers,id=vdb,${REPORTED}`],
    ...["-device", "virtio-serial-device,id=serial0,max_ports=2"],
    ...["-device", `virtserialport,bus=serial0.0,nr=1,chardev=agent,name=${AGENT_PORT_NAME}`],
    ...["-object", "rng-random,id=rng0,filename=/dev/urandom", "-device", "virtio-rng-device,rng=rng0"],
    ...["-serial", "chardev:console"],
    ...["-kernel", JAIL_PATHS.kernel, "-initrd", JAIL_PATHS.initramfs],
    ...["-append", kernelArguments],
  ];
}

/** Both are raw, whatever their first bytes look like. Zeros stay holes in the target. */
function diskArguments(): string[] {
  const unmap = { discard: "unmap" } as const;
  const nodes = [
    { "node-name": "target-file", driver: "file", filename: JAIL_PATHS.target, ...unmap },
    { "node-name": "target", driver: "raw", file: "target-file", ...unmap, "detect-zeroes": "unmap" },
    { "node-name": "layers-file", driver: "file", filename: JAIL_PATHS.layers, "read-only": true },
    { "node-name": "layers", driver: "raw", file: "layers-file", "read-only": true },
  ];
  return nodes.flatMap((node) => ["-blockdev", JSON.stringify(node)]);
}
