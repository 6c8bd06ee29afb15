import { expect, it } from "vitest";
import { builderArguments } from "./builder-arguments.ts";

const shape = { accelerator: "tcg", vcpus: 2, memMb: 4096 } as const;
const words = builderArguments(shape, { kernelArguments: "quiet", cpu: "max" });
const valuesOf = (option: string) => words.filter((_, at) => words[at - 1] === option);

it("has two raw disks, of which one can be written, and no network", () => {
  const nodes = valuesOf("-blockdev").map((node) => JSON.parse(node));
  expect(nodes.map(({ driver }) => driver)).toEqual(["file", "raw", "file", "raw"]);
  expect(nodes.filter((node) => node["read-only"] !== true).map((node) => node["node-name"])).toEqual([
    "target-file",
    "target",
  ]);
  const devices = valuesOf("-device").filter((device) => device.startsWith("virtio-blk"));
  expect(devices.map((device) => /drive=(\w+)/.exec(device)?.[1])).toEqual(["target", "layers"]);
  expect(words.join(" ")).not.toMatch(/net|tap/);
  expect(words).toContain("-nodefaults");
});

it("boots from the kernel and the initramfs that its jail has", () => {
  expect([valuesOf("-kernel"), valuesOf("-initrd")]).toEqual([["/vmlinuz"], ["/initramfs"]]);
  expect(valuesOf("-append")).toEqual(["quiet"]);
});
