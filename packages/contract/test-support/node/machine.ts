/** A machine of the fake node: its guest is process groups of this host, and a directory once it has files. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { MachineStatus, StartSpec, StartTimings } from "@vivarium/contract/node";
import { killGroup } from "./host-command.ts";
import type { NamedProcess } from "./processes.ts";
import { Refusal } from "./refusal.ts";

export class FakeMachine {
  readonly machine_id: string;
  readonly spec: StartSpec;
  state: Exclude<MachineStatus["state"], "starting"> = "running";
  reason: string | undefined;
  cause: MachineStatus["cause"];
  readonly guest_ip = "10.64.0.3";
  isolation: MachineStatus["isolation"];
  timings: StartTimings = { queue: 1, disk: 2, load: 3, handshake: 4 };
  /** Whether its guest, and every copy of that, refuses to change identity. */
  isUnfit = false;
  /** The baseline of the snapshot that it was started from. */
  baselineId: string | undefined;
  /** Set if the machine is sealed. */
  stateKey: string | undefined;

  /** A directory of this host with /workspace as `workspace` in it; exists once `withFiles` was called. */
  readonly dir: string;
  /** Host paths of files outside /workspace, by guest path. */
  readonly placed = new Map<string, string>();
  readonly processes = new Map<string, NamedProcess>();
  readonly groups = new Set<number>();
  /** Aborted when the machine ends; kills its running commands. */
  readonly life = new AbortController();
  /** Functions that abort the calls in flight with the guest. */
  readonly underWay = new Set<() => void>();
  #turn: Promise<unknown> = Promise.resolve();
  #files: Promise<unknown> | undefined;

  constructor(init: { machine_id: string; spec: StartSpec; dir: string }) {
    this.machine_id = init.machine_id;
    this.spec = init.spec;
    this.dir = init.dir;
  }

  get status(): MachineStatus {
    const { machine_id, state, reason, cause, guest_ip, isolation, timings } = this;
    if (state === "ended") return { machine_id, state, reason, cause };
    return {
      machine_id,
      state,
      guest_ip,
      isolation,
      timings,
      network_generation: this.spec.network?.generation,
    };
  }

  /** Makes the directory: only on demand, since most machines in control's tests never need it. */
  async withFiles(): Promise<void> {
    this.#files ??= Promise.all(
      ["workspace", "home"].map((name) => mkdir(join(this.dir, name), { recursive: true })),
    );
    await this.#files;
  }

  /** Runs `work` after the captures and continues before it. */
  exclusive<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(work);
    this.#turn = mine.catch(() => {});
    return mine;
  }

  /** Rejects when the machine ends before `work` does. */
  whileAlive<T>(work: Promise<T> | T): Promise<T> {
    const { promise: ended, reject } = Promise.withResolvers<never>();
    const onEnd = () => reject(new Refusal("machine_gone", "the machine has ended"));
    const { signal } = this.life;
    signal.addEventListener("abort", onEnd, { once: true });
    if (signal.aborted) onEnd();
    return Promise.race([work, ended]).finally(() => signal.removeEventListener("abort", onEnd));
  }

  end(reason: string, cause?: MachineStatus["cause"]): void {
    this.state = "ended";
    this.reason = reason;
    this.cause = cause;
    this.life.abort();
    this.breakOff();
    for (const pgid of this.groups) killGroup(pgid);
  }

  /** Aborts the calls in flight with the guest, as the stop of a machine does. */
  breakOff(): void {
    for (const end of this.underWay) end();
  }

  signalAll(signal: "SIGSTOP" | "SIGCONT"): void {
    for (const pgid of this.groups) {
      try {
        process.kill(-pgid, signal);
      } catch {
        // The group has ended already.
      }
    }
  }
}
