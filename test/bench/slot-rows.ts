/** Rows about slots: how long one takes from nothing and from the pool, and its cost in memory. */
import { readdirSync, readFileSync } from "node:fs";
import { sleep } from "@vivarium/kit/clock";
import { createNamespace } from "../../packages/node/src/host/netns.ts";
import { run } from "../../packages/node/src/host/run.ts";
import { type Slot, takeSlot } from "../../packages/node/src/host/slots.ts";
import { residentBytes } from "../support/host-processes.ts";
import type { NetworkLab } from "../support/network-lab.ts";
import { DENY } from "./network-paths.ts";
import { percentile, type Row, row, timed } from "./samples.ts";

const SLOTS = 2048;
const KIB = 1024;
const QUIET_MS = 1_000;
const SPEC = { generation: 1, egress: DENY, exposed: [] };
/** Addresses and ports must be known to the kernel, so they are set up here. */
const FULL_SPEC = {
  ...SPEC,
  egress: { ...DENY, allow: [...DENY.allow, "8.8.4.4", "1.0.0.1:22"] },
  exposed: [3000],
};

export async function setUpRows(lab: NetworkLab, n: number): Promise<Row[]> {
  const samples: Record<"bare" | "cold" | "pool" | "full" | "known", number[]> = {
    ...{ bare: [], cold: [], pool: [], full: [], known: [] },
  };
  const { pool, network } = lab;
  // Alternating, so that a noisy minute of the host affects all of them alike. The first round warms up.
  for (let i = 0; i <= n; i++) {
    const note = (name: keyof typeof samples, ms: number) => i > 0 && samples[name].push(ms);
    note("bare", await bareNamespace());
    const cold = await takeSlot(lab.folder, SLOTS);
    note("cold", await timed(() => setUp(lab, cold, `cold${i}-1`)));
    await pool.discard(cold);
    for (const [name, spec] of [
      ["pool", SPEC],
      ["full", FULL_SPEC],
    ] as const) {
      await untilRefilled();
      let slot: Slot | undefined;
      const ms = await timed(async () => {
        slot = await pool.take("deny");
        await network.networks.assign(slot, `${name}${i}-1`, spec);
      });
      note(name, ms);
      note("known", await timed(() => network.networks.known(slot as Slot, 10_000)));
      await pool.discard(slot as Slot);
    }
  }
  const over = (percentile(samples.cold, 50) / percentile(samples.bare, 50)).toFixed(2);
  return [
    row("namespace with a tap and a bridge, by hand", "ms", samples.bare),
    row("namespace of a session, from nothing", "ms", samples.cold, `${over} × by hand`),
    row("namespace of a session, from the pool", "ms", samples.pool, "goal ≤ 5"),
    row("  with addresses and an exposed port", "ms", samples.full, "beside the loading of the machine"),
    row("  until the gateway knows the machine", "ms", samples.known, "beside the loading of the machine"),
  ];
}

async function setUp({ network }: NetworkLab, slot: Slot, machineId: string): Promise<void> {
  await createNamespace(slot, network.networks.preparedRuleset(slot, "deny"));
  network.networks.addPrepared(slot, "deny");
  await network.networks.assign(slot, machineId, SPEC);
}

async function bareNamespace(): Promise<number> {
  const ms = await timed(async () => {
    await run("ip", ["netns", "add", "bare"]);
    const lines = [
      ...["tuntap add tap0 mode tap", "link add br0 type bridge", "link set tap0 master br0"],
      ...["tap0", "br0"].map((link) => `link set ${link} up`),
    ];
    await run("ip", ["-netns", "bare", "-batch", "-"], { input: lines.join("\n") });
  });
  await run("ip", ["netns", "del", "bare"]);
  return ms;
}

/** Keeps the refilling of the pool, which makes one namespace after the other, out of the measurement. */
async function untilRefilled(): Promise<void> {
  for (let before = -1; before !== countNamespaces(); ) {
    before = countNamespaces();
    await sleep(QUIET_MS);
  }
}

const countNamespaces = () => readdirSync("/run/netns").length;

/** Memory of that many sessions, divided by their number. */
export async function memoryRows({ pool, network, gateway }: NetworkLab, held: number): Promise<Row[]> {
  const before = { gateway: residentBytes(Number(gateway.pid)), kernel: kernelBytes() };
  const slots: Slot[] = [];
  for (let i = 0; i < held; i++) {
    const slot = await pool.take("deny");
    slots.push(slot);
    await network.networks.assign(slot, `held${i}-1`, FULL_SPEC);
  }
  await network.networks.known(slots.at(-1) as Slot, 30_000);
  const after = { gateway: residentBytes(Number(gateway.pid)), kernel: kernelBytes() };
  const perSession = (part: keyof typeof after) => (after[part] - before[part]) / held / KIB;
  for (const slot of slots) await pool.discard(slot);
  return [
    row("memory of one session: gateway", "KiB", [perSession("gateway")], `of ${held}, resident`),
    row("memory of one session: kernel", "KiB", [perSession("kernel")], `of ${held}, namespace and rules`),
  ];
}

/** Memory that the kernel uses for itself, for any process. */
function kernelBytes(): number {
  const text = readFileSync("/proc/meminfo", "utf8");
  const kib = (field: string) => Number(new RegExp(`^${field}:\\s+(\\d+)`, "m").exec(text)?.[1] ?? 0);
  return ["Slab", "Percpu", "KernelStack", "PageTables", "VmallocUsed"].reduce(
    (sum, field) => sum + kib(field) * KIB,
    0,
  );
}
