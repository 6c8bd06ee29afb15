import type { CurrentTables } from "./current-tables.ts";

/** Keeps one value per machine, made at first use and dropped when the machine is no longer in the tables. */
export class PerMachine<T> {
  readonly #make: () => T;
  readonly #kept = new Map<string, T>();

  constructor(tables: CurrentTables, make: () => T) {
    this.#make = make;
    tables.subscribe(() => this.#forget(tables.machineIds()));
  }

  of(machineId: string): T {
    const known = this.#kept.get(machineId);
    if (known !== undefined) return known;
    const made = this.#make();
    this.#kept.set(machineId, made);
    return made;
  }

  clear(): void {
    this.#kept.clear();
  }

  #forget(alive: Set<string>): void {
    for (const machineId of this.#kept.keys()) if (!alive.has(machineId)) this.#kept.delete(machineId);
  }
}
