/** Reads the counters and sets of a machine's nft table, with one call. */
import { z } from "zod";
import { nftIn } from "../host/netns.ts";
import { TABLE } from "./ruleset.ts";

const Listed = z.object({
  counter: z.object({ name: z.string(), packets: z.int(), bytes: z.int() }).optional(),
  quota: z.object({ name: z.string(), bytes: z.number(), used: z.number() }).optional(),
  set: z.object({ name: z.string(), elem: z.array(z.unknown()).optional() }).optional(),
});
/** As nft prints them: names would be those of the host's /etc/protocols, which some hosts lack. */
const PROTOCOLS = { 6: "tcp", 17: "udp" } as const;
/** An element of the sets `refused` and `cut`: the number of refused packets to one target. */
const RefusedFlow = z
  .object({
    elem: z.object({
      val: z.object({ concat: z.tuple([z.string(), z.literal([6, 17]), z.int()]) }),
      counter: z.object({ packets: z.int() }),
    }),
  })
  .transform(({ elem: { val, counter } }) => {
    const [address, protocol, port] = val.concat;
    return { address, protocol: PROTOCOLS[protocol], port, packets: counter.packets };
  });
export type RefusedFlow = z.infer<typeof RefusedFlow>;
export type TableReading = Awaited<ReturnType<typeof readTable>>;

export async function readTable(netns: string) {
  const text = await nftIn(netns, ["-j", "--numeric-protocol", "list", "table", ...TABLE.split(" ")]);
  const { nftables } = z.object({ nftables: z.array(Listed) }).parse(JSON.parse(text));
  const counter = (name: string) => nftables.find((item) => item.counter?.name === name)?.counter;
  const set = (name: string) => nftables.find((item) => item.set?.name === name)?.set?.elem ?? [];
  const flows = (name: string) => set(name).flatMap((element) => RefusedFlow.safeParse(element).data ?? []);
  const quota = nftables.find((item) => item.quota?.name === "cap")?.quota;
  return {
    egressBytes: counter("egress_bytes")?.bytes ?? 0,
    ingressBytes: counter("ingress_bytes")?.bytes ?? 0,
    droppedPackets: counter("dropped")?.packets ?? 0,
    /** Bytes counted by the quota, which include the packet that was cut. */
    quotaBytes: quota?.used ?? 0,
    /** Whether the quota is used up; the kernel then reports its limit, however much it has counted. */
    isQuotaSpent: quota !== undefined && quota.used >= quota.bytes,
    isCapped: set("capped").length > 0,
    refused: flows("refused"),
    /** Flows that the policy allows but the cap refused. Those of the gateway have its address as their target. */
    cut: flows("cut"),
  };
}
