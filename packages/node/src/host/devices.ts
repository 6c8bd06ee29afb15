/** Device nodes of one machine, owned by its uid, because hosts may restrict /dev/kvm and /dev/net/tun to a group. */
import { chown, rm } from "node:fs/promises";
import path from "node:path";
import { run } from "./run.ts";
import type { Slot } from "./slots.ts";

const DEVICES = { tun: ["10", "200"], kvm: ["10", "232"] } as const;
type Device = keyof typeof DEVICES;

export interface DeviceNode {
  /** Node on the host's file system, which must not be mounted `nodev`. */
  source: string;
  /** Path in the jail. */
  target: string;
}

const TARGETS: Record<Device, string> = { tun: "/dev/net/tun", kvm: "/dev/kvm" };

export async function makeDevices(dir: string, slot: Slot, devices: Device[]): Promise<DeviceNode[]> {
  return Promise.all(
    devices.map(async (device) => {
      const source = path.join(dir, device);
      await rm(source, { force: true });
      await run("mknod", ["-m", "600", source, "c", ...DEVICES[device]]);
      await chown(source, slot.uid, slot.uid);
      return { source, target: TARGETS[device] };
    }),
  );
}
