/** Holds the node's tables in force: machines with their policies, preview routes, name servers, forbidden ranges. */
import type { GatewayTables } from "@vivarium/contract/gateway";
import { compileRanges, type IsNever } from "../policy/address-ranges.ts";
import { compileRules, type Rules } from "../policy/rules.ts";
import { KnownPins } from "./known-pins.ts";

/** A slot (a host address that one machine reaches the gateway at) with its machine and the machine's policy. */
export interface MachineSlot {
  hostAddress: string;
  machineId: string;
  sessionId: string;
  generation: number;
  rules: Rules;
  /** Hosts that Connections of the session bind. */
  boundHosts: ReadonlySet<string>;
  /** Stay the same object while machine and policy generation are the same. */
  pins: KnownPins;
}

/** Replaces the tables as a whole. Before the first tables arrive, everything is refused. */
export class CurrentTables {
  #tables: GatewayTables | undefined;
  #slots = new Map<string, MachineSlot>();
  #isNever: IsNever = () => true;
  readonly #listeners = new Set<() => void>();

  current(): GatewayTables | undefined {
    return this.#tables;
  }

  /** The slot of this host address; undefined when it has no machine: connections are refused then. */
  slotAt(hostAddress: string): MachineSlot | undefined {
    return this.#slots.get(hostAddress);
  }

  /** Whether no guest may reach this TCP port of an address, or, without a port, any of its ports. */
  isNever(address: string, port?: number): boolean {
    return this.#isNever(address, port);
  }

  resolvers(): readonly string[] {
    return this.#tables?.resolvers ?? [];
  }

  machineIds(): Set<string> {
    return new Set([...this.#slots.values()].map(({ machineId }) => machineId));
  }

  /** Listeners are called in the order in which they subscribed, after the tables changed. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Throws when a range in the tables cannot be read; the former tables stay in force. */
  replace(tables: GatewayTables): void {
    const isNever = compileRanges(tables.never, tables.open);
    this.#slots = slotsOf(tables, this.#slots);
    this.#isNever = isNever;
    this.#tables = tables;
    for (const listener of [...this.#listeners]) listener();
  }

  /** Called after a reconnect: a node that has restarted may have dropped the pins from the kernel's rules. */
  forgetPins(): void {
    for (const { pins } of this.#slots.values()) pins.clear();
  }
}

function slotsOf(tables: GatewayTables, former: Map<string, MachineSlot>): Map<string, MachineSlot> {
  const slots = new Map<string, MachineSlot>();
  for (const { host_address, machine } of tables.slots) {
    if (!machine) continue;
    const before = former.get(host_address);
    const isSame = before?.machineId === machine.machine_id && before.generation === machine.generation;
    slots.set(host_address, {
      hostAddress: host_address,
      machineId: machine.machine_id,
      sessionId: machine.session_id,
      generation: machine.generation,
      rules: compileRules(machine.egress),
      boundHosts: new Set(machine.bound_hosts),
      pins: isSame ? before.pins : new KnownPins(),
    });
  }
  return slots;
}
