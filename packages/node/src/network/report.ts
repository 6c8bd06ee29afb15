/** The network report that control fetches every few seconds: counters of machines, egress log lines, active previews. */
import { type EgressEntry, GATEWAY_PORTS } from "@vivarium/contract/gateway";
import type { MachineCounters, NetworkReport } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import { nftIn, readLinkCounters } from "../host/netns.ts";
import type { Slot } from "../host/slots.ts";
import type { EgressLog } from "./egress-log.ts";
import type { Networks } from "./networks.ts";
import { type RefusedFlow, readTable, type TableReading } from "./read-table.ts";
import { FORGET_REFUSED, MAX_REFUSED_FLOWS } from "./ruleset.ts";
import type { SlotNetwork } from "./slot-network.ts";

/** How long a reading serves further requests, because it costs up to two processes per machine. */
const FRESH_MS = 2_000;
const CONCURRENT_READS = 4;
/** The counters of a machine that ended stay in the report for this long after they first appear in it. */
const ENDED_REPORTED_MS = 60_000;
/** Number of refused flows at which the kernel's sets are emptied, so that new flows fit. */
const NEARLY_FULL = MAX_REFUSED_FLOWS / 2;

export interface ReporterDeps {
  networks: Networks;
  log: EgressLog;
  /** Whether no guest reaches the flow's target, whatever its policy. */
  isNever: (flow: RefusedFlow) => boolean;
  /** A process in this machine's namespace, if one is known. */
  pidOf: (machineId: string) => number | undefined;
  say: Log;
}

interface LastReading {
  /** Link counters and number of policy changes before the reading; undefined if they could not be read. */
  basis: string | undefined;
  /** Whether the table had counted every packet of the basis when it was read, and no refused flow can expire. */
  isFinal: boolean;
  counters: MachineCounters;
}

export class Reporter {
  readonly #deps: ReporterDeps;
  #read: { at: number; counters: Promise<MachineCounters[]> } | undefined;
  readonly #ended = new Map<string, { reportedAt?: number; counters: MachineCounters }>();
  readonly #last = new Map<string, LastReading>();
  /** Packets of refused flows that are in the egress log already, per machine. */
  readonly #logged = new Map<string, Map<string, number>>();

  constructor(deps: ReporterDeps) {
    this.#deps = deps;
  }

  async report(after: string | undefined): Promise<NetworkReport> {
    if (!this.#read || performance.now() - this.#read.at > FRESH_MS) {
      this.#read = { at: performance.now(), counters: this.#readAll() };
    }
    const running = await this.#read.counters;
    const ended = this.#endedLately().filter((one) => running.every((r) => r.machine_id !== one.machine_id));
    return { counters: [...running, ...ended], ...this.#deps.log.pageAfter(after) };
  }

  /** Reads the counters of a machine that is being removed. `ofMachine`: its id, if the machine is not in memory. */
  async readLast(slot: Slot, ofMachine?: string): Promise<void> {
    const machine = this.#deps.networks.get(slot)?.machine;
    const machineId = machine?.machineId ?? ofMachine;
    if (machineId === undefined) return;
    const reading = await this.#readOne(slot, machineId, machine?.spec.egress_limit_bytes);
    if (reading) this.#ended.set(machineId, reading);
    this.#read = undefined;
  }

  async #readAll(): Promise<MachineCounters[]> {
    const networks = this.#deps.networks.all();
    const known = new Set(networks.map(({ machine }) => machine?.machineId));
    for (const byMachine of [this.#logged, this.#last])
      for (const id of byMachine.keys()) if (!known.has(id)) byMachine.delete(id);
    const counters: MachineCounters[] = [];
    const waiting = networks.values();
    const worker = async () => {
      for (const network of waiting) {
        const one = await this.#readUnlessIdle(network);
        if (one) counters.push(one);
      }
    };
    await Promise.all(Array.from({ length: CONCURRENT_READS }, worker));
    return counters;
  }

  /**
   * The table changes only when a packet passes a link, when a change of policy is applied, or when a refused flow in
   * it expires. While none of these can happen, the last reading is still right and no process is started.
   *
   * Links count a packet before its way through the table ends. So the first reading after a packet is not final.
   */
  async #readUnlessIdle({ slot, machine, changes }: SlotNetwork): Promise<MachineCounters | undefined> {
    if (!machine) return undefined;
    const { machineId, spec } = machine;
    const pid = this.#deps.pidOf(machineId);
    const links = pid === undefined ? undefined : readLinkCounters(pid);
    const basis = links === undefined ? undefined : `${changes}\n${links}`;
    const last = this.#last.get(machineId);
    const isSame = basis !== undefined && last?.basis === basis;
    if (isSame && last.isFinal) return last.counters;
    const reading = await this.#readOne(slot, machineId, spec.egress_limit_bytes);
    if (!reading) return undefined;
    const { counters, hasRefused } = reading;
    this.#last.set(machineId, { basis, isFinal: isSame && !hasRefused, counters });
    return counters;
  }

  /** Undefined if the namespace is being removed. `limit` was read before the table, which may have a later one. */
  async #readOne(slot: Slot, machineId: string, limit: number | undefined) {
    try {
      const table = await readTable(slot.netns);
      this.#logRefused(machineId, slot, table);
      const refused = Math.max(table.refused.length, table.cut.length);
      if (refused >= NEARLY_FULL) await this.#forgetRefused(machineId, slot);
      const counters: MachineCounters = {
        machine_id: machineId,
        egress_bytes: table.egressBytes,
        ingress_bytes: table.ingressBytes,
        dropped_packets: table.droppedPackets,
        is_capped: table.isCapped,
        limit_bytes: limit,
      };
      return { counters, hasRefused: refused > 0 };
    } catch (err) {
      this.#deps.say.warn({ machine: machineId, err }, "a machine's counters could not be read");
      return undefined;
    }
  }

  /** Empties the kernel's sets: flows that do not fit get no log line, so a guest that fills the sets would hide them. */
  async #forgetRefused(machineId: string, { netns }: Slot): Promise<void> {
    await nftIn(netns, ["-f", "-"], FORGET_REFUSED).then(
      () => this.#logged.delete(machineId),
      (err: unknown) =>
        this.#deps.say.warn({ machine: machineId, err }, "refused flows could not be forgotten"),
    );
  }

  #logRefused(machineId: string, { hostAddress }: Slot, { refused, cut }: TableReading): void {
    const at = new Date().toISOString();
    const reasonOf = (flow: RefusedFlow) =>
      this.#deps.isNever(flow) ? ("never_address" as const) : ("port_not_allowed" as const);
    const lines = [
      ...refused.map((flow) => ({ flow, reason: reasonOf(flow), to: toItself(flow) })),
      ...cut.map((flow) => ({ flow, reason: "capped" as const, to: toGateway(flow, hostAddress) })),
    ];
    const keyOf = ({ flow, reason }: (typeof lines)[number]) =>
      `${reason} ${flow.protocol} ${flow.address}:${flow.port}`;
    const before = this.#logged.get(machineId);
    const entries: EgressEntry[] = lines.flatMap((line) => {
      const { packets } = line.flow;
      const known = before?.get(keyOf(line)) ?? 0;
      // An element that expired and came again counts from the start.
      const count = packets < known ? packets : packets - known;
      if (count === 0) return [];
      const entry = { machine_id: machineId, at, ...line.to, bytes_out: 0, bytes_in: 0 };
      return [{ ...entry, verdict: "denied" as const, reason: line.reason, count }];
    });
    this.#logged.set(machineId, new Map(lines.map((line) => [keyOf(line), line.flow.packets])));
    this.#deps.log.add(entries);
  }

  #endedLately(): MachineCounters[] {
    const now = performance.now();
    for (const [id, one] of this.#ended) {
      one.reportedAt ??= now;
      if (now - one.reportedAt > ENDED_REPORTED_MS) this.#ended.delete(id);
    }
    return [...this.#ended.values()].map(({ counters }) => counters);
  }
}

type Target = Pick<EgressEntry, "kind" | "address" | "port">;

const toItself = ({ address, protocol, port }: RefusedFlow): Target => ({ kind: protocol, address, port });

/** The target for the log: for a flow that the rules redirected to the gateway, the one that the guest meant. */
function toGateway(flow: RefusedFlow, hostAddress: string): Target {
  if (flow.address !== hostAddress) return toItself(flow);
  if (flow.port === GATEWAY_PORTS.http) return { kind: "http", port: 80 };
  if (flow.port === GATEWAY_PORTS.tls) return { kind: "tls", port: 443 };
  return { kind: "dns", port: 53 };
}
