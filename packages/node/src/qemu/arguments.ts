/**
 * QEMU's command line. The device list must be the same when a baseline is baked and when it is loaded. So it goes
 * into the manifest, and every later snapshot of that baseline is loaded with it.
 */
import { createHash } from "node:crypto";
import { AGENT_PORT_NAME } from "@vivarium/contract/guest";
import { type Accelerator, cpuArgument, type GuestCpu } from "./cpu-model.ts";
import { readHostCpu } from "./host-cpu.ts";

/** Paths as QEMU sees them inside its jail. */
export const JAIL_PATHS = {
  memory: "/memory",
  base: "/base.raw",
  layer: "/layer.qcow2",
  disk: "/disk.qcow2",
  state: "/state",
  kernel: "/vmlinuz",
  initramfs: "/initramfs",
  run: "/run",
  /** The part of a sealed machine's disk that is not sealed. In /tmp, which every jail has, also one of an earlier version. */
  under: "/tmp/under.qcow2",
  diskKey: "/run/disk-key",
  volume: "/run/volume",
  /** The disks of a builder. */
  target: "/tmp/target.raw",
  layers: "/tmp/layers.raw",
  qmp: "/run/qmp.sock",
  agent: "/run/agent.sock",
} as const;

/** Names of the spare disk: in QEMU's device list, and of the medium that it has while no volume is attached. */
export const SPARE_DISK = "volume";
const NO_MEDIUM = "no-volume";
/** The guest knows the spare disk by it (`guest/agent/src/volume.rs`). */
const SPARE_SERIAL = "volume";

export const GUEST_MAC = "02:00:00:00:00:02";
export const TAP_NAME = "tap0";
const CONSOLE_BYTES = "64K";

export interface MachineShape {
  accelerator: Accelerator;
  vcpus: number;
  memMb: number;
}

export interface ColdBoot {
  kernelArguments: string;
  devices: string[];
}

/**
 * Kernel command line of a cold boot. Under TCG the kernel cannot calibrate its clock, so it gets the frequency. A
 * panic restarts at once, and a restart is a triple fault, which ends QEMU: the other ways to restart need firmware,
 * which a loaded machine does not have.
 */
export function kernelArguments(accelerator: Accelerator, tscKhz: number): string {
  const words = [
    "console=ttyS0",
    "quiet",
    "panic=-1",
    "reboot=t",
    "init_on_alloc=0",
    "ipv6.disable=1",
    "net.ifnames=0",
    "random.trust_cpu=on",
  ];
  // Reliable: on a busy host the kernel's watchdog would otherwise replace it with a clock that ticks every 4 ms.
  if (accelerator === "tcg") words.push(`tsc_early_khz=${tscKhz}`, "tsc=reliable");
  return words.join(" ");
}

const SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/**
 * Machine, CPU and devices: everything that a saved device state depends on. A change here applies to what is baked
 * from now on. Older states are loaded with the arguments that they were baked with.
 */
export function deviceArguments(shape: MachineShape, model = "host"): string[] {
  return [
    ...devicesWith(shape, cpuArgument(shape.accelerator, model)),
    ...["-device", `virtio-blk-device,drive=${NO_MEDIUM},id=${SPARE_DISK},serial=${SPARE_SERIAL}`],
  ];
}

/** Whether a machine with these devices can have a volume. What was saved by earlier versions has no disk for it. */
export const hasSpareDisk = (devices: string[]): boolean =>
  devices.some((argument) => argument.includes(`drive=${NO_MEDIUM},`));

/** The medium of the spare disk without a volume, which keeps nothing. It can be written to, as the disk can later. */
function spareArguments(devices: string[]): string[] {
  if (!hasSpareDisk(devices)) return [];
  const node = { "node-name": NO_MEDIUM, driver: "null-co", size: 2 ** 20, "read-zeroes": true };
  return ["-blockdev", JSON.stringify(node)];
}

/** The devices of baselines that were baked before manifests recorded them. */
export function unrecordedDevices(shape: MachineShape): string[] {
  const emulated = "max,pku=off,la57=off,erms=off,fsrm=off";
  return devicesWith(shape, shape.accelerator === "tcg" ? emulated : "host,migratable=on");
}

/** The machine without its devices. */
export function machineArguments(shape: MachineShape, cpu: string): string[] {
  const tcg = shape.accelerator === "tcg";
  return [
    ...["-machine", `microvm,acpi=on,rtc=on,pit=${onOff(tcg)},pic=${onOff(tcg)},memory-backend=mem`],
    ...["-accel", tcg ? "tcg,thread=multi" : "kvm"],
    ...["-cpu", cpu],
    ...["-smp", String(shape.vcpus), "-m", `${shape.memMb}M`],
  ];
}

function devicesWith(shape: MachineShape, cpu: string): string[] {
  return [
    ...machineArguments(shape, cpu),
    ...["-device", "virtio-blk-device,drive=disk,id=vda"],
    ...["-device", "virtio-serial-device,id=serial0,max_ports=2"],
    ...["-device", `virtserialport,bus=serial0.0,nr=1,chardev=agent,name=${AGENT_PORT_NAME}`],
    ...["-object", "rng-random,id=rng0,filename=/dev/urandom", "-device", "virtio-rng-device,rng=rng0"],
    ...["-device", `virtio-net-device,netdev=net0,mac=${GUEST_MAC}`],
    ...["-serial", "chardev:console"],
    ...["-global", "migration.send-configuration=off", "-global", "migration.send-switchover-start=off"],
  ];
}

/**
 * Hash of the arguments; recorded at bake, compared at load. A manifest without `cpu` is of an earlier version: with KVM
 * its guest has the host's own CPU, which then is in the hash.
 */
export function deviceArgumentsHash(
  { accelerator, cpu }: { accelerator: Accelerator; cpu?: GuestCpu | undefined },
  devices: string[],
  hostCpu = readHostCpu,
): string {
  const fits = [...devices, ...(accelerator === "kvm" && cpu === undefined ? [hostCpu()] : [])];
  return createHash("sha256").update(JSON.stringify(fits)).digest("hex");
}

/** The host's ends of what every machine has. */
export function backendArguments(memory: string): string[] {
  return [
    ...["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"],
    ...["-sandbox", SANDBOX],
    ...["-L", "/usr/share/qemu", "-L", "/usr/share/seabios"],
    ...["-object", memory],
    ...["-chardev", `socket,id=agent,path=${JAIL_PATHS.agent},server=on,wait=off`],
    ...["-chardev", `ringbuf,id=console,size=${CONSOLE_BYTES}`],
    ...["-qmp", `unix:${JAIL_PATHS.qmp},server=on,wait=off`],
  ];
}

const netArguments = ["-netdev", `tap,id=net0,ifname=${TAP_NAME},script=no,downscript=no,vhost=off`];

/** Formats and backing files are explicit, so that whatever a qcow2 header names is ignored. */
function diskArguments(layers: {
  base: string;
  layer?: string;
  under?: string | undefined;
  disk: string;
  /** The file with the passphrase of the encrypted disk. */
  key?: string | undefined;
}): string[] {
  const nodes: Record<string, unknown>[] = [
    { "node-name": "base-file", driver: "file", filename: layers.base, "read-only": true },
    { "node-name": "base", driver: "raw", file: "base-file", "read-only": true },
  ];
  let backing = "base";
  for (const name of ["layer", "under"] as const) {
    const filename = layers[name];
    if (filename === undefined) continue;
    nodes.push(
      { "node-name": `${name}-file`, driver: "file", filename, "read-only": true },
      { "node-name": name, driver: "qcow2", file: `${name}-file`, backing, "read-only": true },
    );
    backing = name;
  }
  nodes.push(
    { "node-name": "disk-file", driver: "file", filename: layers.disk, discard: "unmap" },
    {
      "node-name": "disk",
      driver: "qcow2",
      file: "disk-file",
      backing,
      discard: "unmap",
      "detect-zeroes": "unmap",
      ...(layers.key !== undefined && { encrypt: { format: "luks", "key-secret": "disk-key" } }),
    },
  );
  return [
    ...(layers.key === undefined ? [] : ["-object", `secret,id=disk-key,file=${layers.key}`]),
    ...nodes.flatMap((node) => ["-blockdev", JSON.stringify(node)]),
  ];
}

/** Cold boot from kernel and base disk, with memory that is written through to its file. */
export function coldBootArguments(shape: MachineShape, boot: ColdBoot): string[] {
  return [
    ...backendArguments(
      `memory-backend-file,id=mem,size=${shape.memMb}M,mem-path=${JAIL_PATHS.memory},share=on`,
    ),
    ...netArguments,
    ...diskArguments({ base: JAIL_PATHS.base, disk: JAIL_PATHS.disk }),
    ...spareArguments(boot.devices),
    ...boot.devices,
    ...kernelOf(boot),
  ];
}

/**
 * Waits for a device state made with these devices, with the snapshot's memory mapped privately. With `isSealed` the disk
 * is encrypted, above one that is not.
 */
export function loadArguments(shape: MachineShape, devices: string[], isSealed = false): string[] {
  return [...savedArguments(shape, devices, isSealed), ...["-incoming", "defer", "-S"]];
}

/** Waits to boot from a snapshot's disk, with its empty memory mapped privately. */
export function bootArguments(shape: MachineShape, boot: ColdBoot, isSealed = false): string[] {
  return [...savedArguments(shape, boot.devices, isSealed), ...kernelOf(boot), "-S"];
}

function savedArguments(shape: MachineShape, devices: string[], isSealed: boolean): string[] {
  return [
    ...backendArguments(
      `memory-backend-file,id=mem,size=${shape.memMb}M,mem-path=${JAIL_PATHS.memory},share=off,readonly=on,rom=off`,
    ),
    ...netArguments,
    ...diskArguments({
      ...{ base: JAIL_PATHS.base, layer: JAIL_PATHS.layer, disk: JAIL_PATHS.disk },
      ...(isSealed && { under: JAIL_PATHS.under, key: JAIL_PATHS.diskKey }),
    }),
    ...spareArguments(devices),
    ...devices,
  ];
}

const kernelOf = ({ kernelArguments }: ColdBoot): string[] => [
  ...["-kernel", JAIL_PATHS.kernel, "-initrd", JAIL_PATHS.initramfs, "-append", kernelArguments],
];

const onOff = (value: boolean) => (value ? "on" : "off");
