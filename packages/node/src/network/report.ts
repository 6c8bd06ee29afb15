/** What control fetches every few seconds: counters of machines, lines of egress logs, previews in use. */
import type { EgressEntry } from "@vivarium/contract/gateway";
import type { MachineCounters, NetworkReport } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import type { Slot } from "../host/slots.ts";
import type { EgressLog } from "./egress-log.ts";
import type { Networks } from "./networks.ts";
import { readTable, type TableReading } from "./read-table.ts";
import type { SlotNetwork } from "./slot-network.ts";

/** Reading costs a process per machine; who asks more often is told the same. */
const FRESH_MS = 2_000;
const AT_ONCE = 4;
const ENDED_KEPT_MS = 60_000;

export class Reporter {
  readonly #deps: { networks: Networks; log: EgressLog; isNever: (address: string) => boolean; say: Log };
  #read: { at: number; counters: Promise<MachineCounters[]> } | undefined;
  readonly #ended = new Map<string, { at: number; counters: MachineCounters }>();
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

  /** The last reading of a machine that ends now, so that its last bytes count. */
  async readLast(slot: Slot): Promise<void> {
    const network = this.#deps.networks.get(slot);
    const machineId = network?.machine?.machineId;
    if (!network || machineId === undefined) return;
    const counters = await this.#readOne(network);
    if (counters) this.#ended.set(machineId, { at: performance.now(), counters });
    this.#read = undefined;
  }

  async #readAll(): Promise<MachineCounters[]> {
    const waiting = this.#deps.networks.all().filter(({ machine }) => machine !== undefined);
    const known = new Set(waiting.map(({ machine }) => machine?.machineId));
    for (const id of this.#told.keys()) if (!known.has(id)) this.#told.delete(id);
    const counters: MachineCounters[] = [];
    const worker = async () => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        const one = await this.#readOne(next);
        if (one) counters.push(one);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    return counters;
  }

  /** Nothing, where the namespace is just being removed. */
  async #readOne(network: SlotNetwork): Promise<MachineCounters | undefined> {
    const machineId = network.machine?.machineId;
    if (machineId === undefined) return undefined;
    try {
      const reading = await readTable(network.slot.netns);
      this.#logRefused(machineId, reading);
      return {
        machine_id: machineId,
        egress_bytes: reading.egressBytes,
        ingress_bytes: reading.ingressBytes,
        dropped_packets: reading.droppedPackets,
        is_capped: reading.isCapped,
      };
    } catch (err) {
      this.#deps.say.warn({ machine: machineId, err }, "a machine's counters could not be read");
      return undefined;
    }
  }

  #logRefused(machineId: string, { refused }: TableReading): void {
    const before = this.#told.get(machineId);
    const at = new Date().toISOString();
    const entries: EgressEntry[] = refused.flatMap(({ address, protocol, port, packets }) => {
      const known = before?.get(`${protocol} ${address}:${port}`) ?? 0;
      // An element that timed out and came again counts from the start.
      const count = packets < known ? packets : packets - known;
      if (count === 0) return [];
      const reason = this.#deps.isNever(address) ? ("never_address" as const) : ("port_not_allowed" as const);
      const line = { machine_id: machineId, at, kind: protocol, address, port, bytes_out: 0, bytes_in: 0 };
      return [{ ...line, verdict: "denied" as const, reason, count }];
    });
    this.#told.set(
      machineId,
      new Map(
        refused.map(({ address, protocol, port, packets }) => [`${protocol} ${address}:${port}`, packets]),
      ),
    );
    this.#deps.log.add(entries);
  }

  #endedLately(): MachineCounters[] {
    for (const [id, { at }] of this.#ended)
      if (performance.now() - at > ENDED_KEPT_MS) this.#ended.delete(id);
    return [...this.#ended.values()].map(({ counters }) => counters);
  }
}
