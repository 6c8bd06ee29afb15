/** What control fetches every few seconds: counters of machines, lines of egress logs, previews in use. */
import { type EgressEntry, GATEWAY_PORTS } from "@vivarium/contract/gateway";
import type { MachineCounters, NetworkReport } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import { nftIn } from "../host/netns.ts";
import type { Slot } from "../host/slots.ts";
import type { EgressLog } from "./egress-log.ts";
import type { Networks } from "./networks.ts";
import { type RefusedFlow, readTable, type TableReading } from "./read-table.ts";
import { FORGET_REFUSED, REFUSED_PLACES } from "./ruleset.ts";

/** Reading costs a process per machine; who asks more often is told the same. */
const FRESH_MS = 2_000;
const AT_ONCE = 4;
/** What a machine that ended had counted is told for so long from its first telling on. */
const ENDED_TOLD_MS = 60_000;
/** Of the places that the kernel remembers, so that the next reading has room as well. */
const NEARLY_FULL = REFUSED_PLACES / 2;

export class Reporter {
  readonly #deps: { networks: Networks; log: EgressLog; isNever: (address: string) => boolean; say: Log };
  #read: { at: number; counters: Promise<MachineCounters[]> } | undefined;
  readonly #ended = new Map<string, { toldAt?: number; counters: MachineCounters }>();
  /** Packets of refused flows that were told already, per machine. */
  readonly #told = new Map<string, Map<string, number>>();

  constructor(deps: {
    networks: Networks;
    log: EgressLog;
    isNever: (address: string) => boolean;
    say: Log;
  }) {
    this.#deps = deps;
  }

  async report(after: string | undefined): Promise<NetworkReport> {
    if (!this.#read || performance.now() - this.#read.at > FRESH_MS) {
      this.#read = { at: performance.now(), counters: this.#readAll() };
    }
    const running = await this.#read.counters;
    const { entries, lost, cursor, active_sessions } = this.#deps.log.pageAfter(after);
    const ended = this.#endedLately().filter((one) => running.every((r) => r.machine_id !== one.machine_id));
    return { counters: [...running, ...ended], entries, lost, cursor, active_sessions };
  }

  /** The last reading of a machine that ends now, so that its last bytes count; also of one that no process knows yet. */
  async readLast(slot: Slot, ofMachine?: string): Promise<void> {
    const network = this.#deps.networks.get(slot);
    const machineId = network?.machine?.machineId ?? ofMachine;
    if (machineId === undefined) return;
    const counters = await this.#readOne({
      slot,
      machineId,
      limit: network?.machine?.spec.egress_limit_bytes,
    });
    if (counters) this.#ended.set(machineId, { counters });
    this.#read = undefined;
  }

  async #readAll(): Promise<MachineCounters[]> {
    const waiting = this.#deps.networks.all().filter(({ machine }) => machine !== undefined);
    const known = new Set(waiting.map(({ machine }) => machine?.machineId));
    for (const id of this.#told.keys()) if (!known.has(id)) this.#told.delete(id);
    const counters: MachineCounters[] = [];
    const worker = async () => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        const { slot, machine } = next;
        if (!machine) continue;
        const limit = machine.spec.egress_limit_bytes;
        const one = await this.#readOne({ slot, machineId: machine.machineId, limit });
        if (one) counters.push(one);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    return counters;
  }

  /**
   * Nothing, where the namespace is just being removed. The limit is that of before: what was cut under an older one is
   * never told under a newer one.
   */
  async #readOne({ slot, machineId, limit }: ToRead): Promise<MachineCounters | undefined> {
    try {
      const reading = await readTable(slot.netns);
      this.#logRefused(machineId, slot, reading);
      if (Math.max(reading.refused.length, reading.cut.length) >= NEARLY_FULL)
        await this.#forgetRefused(machineId, slot);
      return {
        machine_id: machineId,
        egress_bytes: reading.egressBytes,
        ingress_bytes: reading.ingressBytes,
        dropped_packets: reading.droppedPackets,
        is_capped: reading.isCapped,
        limit_bytes: limit,
      };
    } catch (err) {
      this.#deps.say.warn({ machine: machineId, err }, "a machine's counters could not be read");
      return undefined;
    }
  }

  /** What the kernel has no room for is refused without a line: who fills the room would hide the rest. */
  async #forgetRefused(machineId: string, { netns }: Slot): Promise<void> {
    await nftIn(netns, ["-f", "-"], FORGET_REFUSED).then(
      () => this.#told.delete(machineId),
      (err: unknown) =>
        this.#deps.say.warn({ machine: machineId, err }, "refused flows could not be forgotten"),
    );
  }

  #logRefused(machineId: string, { hostAddress }: Slot, { refused, cut }: TableReading): void {
    const at = new Date().toISOString();
    const lines = [
      ...refused.map((flow) => ({ flow, reason: this.#reasonOf(flow), to: toItself(flow) })),
      ...cut.map((flow) => ({ flow, reason: "capped" as const, to: toGateway(flow, hostAddress) })),
    ];
    const keyOf = ({ flow, reason }: (typeof lines)[number]) =>
      `${reason} ${flow.protocol} ${flow.address}:${flow.port}`;
    const before = this.#told.get(machineId);
    const entries: EgressEntry[] = lines.flatMap((line) => {
      const { packets } = line.flow;
      const known = before?.get(keyOf(line)) ?? 0;
      // An element that timed out and came again counts from the start.
      const count = packets < known ? packets : packets - known;
      if (count === 0) return [];
      const told = { machine_id: machineId, at, ...line.to, bytes_out: 0, bytes_in: 0 };
      return [{ ...told, verdict: "denied" as const, reason: line.reason, count }];
    });
    this.#told.set(machineId, new Map(lines.map((line) => [keyOf(line), line.flow.packets])));
    this.#deps.log.add(entries);
  }

  #reasonOf({ address }: RefusedFlow): "never_address" | "port_not_allowed" {
    return this.#deps.isNever(address) ? "never_address" : "port_not_allowed";
  }

  #endedLately(): MachineCounters[] {
    const now = performance.now();
    for (const [id, one] of this.#ended) {
      one.toldAt ??= now;
      if (now - one.toldAt > ENDED_TOLD_MS) this.#ended.delete(id);
    }
    return [...this.#ended.values()].map(({ counters }) => counters);
  }
}

interface ToRead {
  slot: Slot;
  machineId: string;
  limit: number | undefined;
}

type Towards = Pick<EgressEntry, "kind" | "address" | "port">;

function toItself({ address, protocol, port }: RefusedFlow): Towards {
  return { kind: protocol, address, port };
}

/** What the rules sent to the gateway is told as what the guest meant. */
function toGateway(flow: RefusedFlow, hostAddress: string): Towards {
  if (flow.address !== hostAddress) return toItself(flow);
  if (flow.port === GATEWAY_PORTS.http) return { kind: "http", port: 80 };
  if (flow.port === GATEWAY_PORTS.tls) return { kind: "tls", port: 443 };
  return { kind: "dns", port: 53 };
}
