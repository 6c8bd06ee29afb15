import { BlockList } from "node:net";

/** Whether an IPv4 address lies in one of the ranges `a.b.c.d/n`. */
export function inRanges(ranges: string[]): (address: string) => boolean {
  const list = new BlockList();
  for (const range of ranges) {
    const [address = "", bits = "32"] = range.split("/");
    list.addSubnet(address, Number(bits), "ipv4");
  }
  return (address) => list.check(address, "ipv4");
}
