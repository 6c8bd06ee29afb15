import type { GatewayTables } from "@vivarium/contract/gateway";
import { compileRanges, type IsNever } from "../egress/address-ranges.ts";
import { compileRules, type Rules } from "../egress/rules.ts";
import { KnownPins } from "./known-pins.ts";

/** A slot that has a machine: whom a connection to its host address belongs to, and what that machine may do. */
export interface Place {
  hostAddress: string;
  machineId: string;
  sessionId: string;
  generation: number;
  rules: Rules;
  /** Kept as long as machine and generation stay. */
  pins: KnownPins;
}

/** The tables in force, made ready to be asked; replaced whole. Before the first: nobody is known, nothing is open. */
export class CurrentTables {
  #tables: GatewayTables | undefined;
  #places = new Map<string, Place>();
  #isNever: IsNever = () => true;
  readonly #listeners = new Set<() => void>();

  current(): GatewayTables | undefined {
    return this.#tables;
  }

  /** Who listens on this host address; undefined: whatever comes is refused. */
  placeAt(hostAddress: string): Place | undefined {
    return this.#places.get(hostAddress);
  }

  isNever(address: string): boolean {
    return this.#isNever(address);
  }

  resolvers(): readonly string[] {
    return this.#tables?.resolvers ?? [];
  }

  machineIds(): Set<string> {
    return new Set([...this.#places.values()].map(({ machineId }) => machineId));
  }

  /** Listeners are called in the order in which they subscribed, after the tables changed. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Throws, with the former tables still in force, where these cannot be understood. */
  replace(tables: GatewayTables): void {
    const isNever = compileRanges(tables.never);
    this.#places = placesOf(tables, this.#places);
    this.#isNever = isNever;
    this.#tables = tables;
    for (const listener of [...this.#listeners]) listener();
  }

  /** The node may have started anew, and the kernel's rules with it. */
  forgetPins(): void {
    for (const { pins } of this.#places.values()) pins.clear();
  }
}

function placesOf(tables: GatewayTables, former: Map<string, Place>): Map<string, Place> {
  const places = new Map<string, Place>();
  for (const { host_address, machine } of tables.slots) {
    if (!machine) continue;
    const before = former.get(host_address);
    const isSame = before?.machineId === machine.machine_id && before.generation === machine.generation;
    places.set(host_address, {
      hostAddress: host_address,
      machineId: machine.machine_id,
      sessionId: machine.session_id,
      generation: machine.generation,
      rules: compileRules(machine.egress),
      pins: isSame ? before.pins : new KnownPins(),
    });
  }
  return places;
}
