import type { GatewayTables } from "@vivarium/contract/gateway";
import { compileRanges, type IsNever } from "../policy/address-ranges.ts";
import { compileRules, type Rules } from "../policy/rules.ts";
import { KnownPins } from "./known-pins.ts";

/** A slot with a machine: the machine that connections to the host address come from, and its policy. */
export interface MachineSlot {
  hostAddress: string;
  machineId: string;
  sessionId: string;
  generation: number;
  rules: Rules;
  /** Kept while machine and generation stay the same. */
  pins: KnownPins;
}

/** The tables in force, compiled, and replaced as a whole. Before the first ones everything is refused. */
export class CurrentTables {
  #tables: GatewayTables | undefined;
  #slots = new Map<string, MachineSlot>();
  #isNever: IsNever = () => true;
  readonly #listeners = new Set<() => void>();

  current(): GatewayTables | undefined {
    return this.#tables;
  }

  /** The slot of this host address; undefined: connections are refused. */
  slotAt(hostAddress: string): MachineSlot | undefined {
    return this.#slots.get(hostAddress);
  }

  isNever(address: string): boolean {
    return this.#isNever(address);
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

  /** Throws when the tables cannot be read; the former ones stay in force. */
  replace(tables: GatewayTables): void {
    const isNever = compileRanges(tables.never);
    this.#slots = slotsOf(tables, this.#slots);
    this.#isNever = isNever;
    this.#tables = tables;
    for (const listener of [...this.#listeners]) listener();
  }

  /** The node may have restarted, and made the kernel's rules anew. */
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
      pins: isSame ? before.pins : new KnownPins(),
    });
  }
  return slots;
}
