/**
 * Machines that are loaded, warmed and stopped ahead, so that a create only needs identity and `cont`: the first command
 * of a fresh guest is the slow one. One pool per hot baseline; made in the background while the node is quiet
 * and memory is free, woken every minute by a command, and thrown away when that fails (performance.md "Techniques").
 */
import { freemem } from "node:os";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { randomId } from "@vivarium/kit/id";
import type { Log } from "@vivarium/kit/log";
import { UndoStack } from "@vivarium/kit/undo-stack";
import type { NodeConfig } from "../config.ts";
import type { DiskGate } from "../disks/gate.ts";
import { AgentClient } from "../guest/client.ts";
import { execInGuest } from "../guest/exec.ts";
import type { NamespacePool } from "../host/namespace-pool.ts";
import type { ProcessIdentity } from "../host/process.ts";
import type { QemuRoot } from "../host/qemu-root.ts";
import type { Slot } from "../host/slots.ts";
import type { Qmp } from "../qemu/qmp.ts";
import type { Baseline, Baselines } from "../snapshots/baselines.ts";
import type { Verifications } from "../snapshots/verify-together.ts";
import { resumeAs } from "./guest-state.ts";
import { machineDir, removeEntry, writeEntry } from "./journal.ts";
import { launch, prepareFiles } from "./launch.ts";
import { WarmStock } from "./warm-stock.ts";

const MIB = 1024 * 1024;
/** Memory that a pool leaves free beside what its next machine may come to use. */
const HEADROOM_BYTES = 2048 * MIB;
const DISK_BYTES = 64 * MIB;
/** A pool is filled when nobody has started a machine for so long: filling takes the processor that they need. */
const QUIET_MS = 1_500;
const KEEP_ALIVE_MS = 60_000;
const COMMAND_LIMIT_MS = 20_000;
/** A baseline that nobody asked for so long is not hot any more. */
const HOT_MS = 15 * 60_000;

/** What a pooled machine runs once, so that the paths of the usual first commands are translated and in memory. */
const WARM_UP = [["true"], ["sh", "-c", "true"], ["python3", "-c", "print(1)"], ["true"]];

export interface WarmMachine {
  /** Name of its folder until it becomes a session's. */
  id: string;
  slot: Slot;
  process: ProcessIdentity;
  qmp: Qmp;
  agent: AgentClient;
  undo: UndoStack;
}

export interface WarmPoolDeps {
  config: NodeConfig;
  qemu: QemuRoot;
  baselines: Baselines;
  verifications: Verifications;
  namespaces: NamespacePool;
  gate: DiskGate;
  log: Log;
}

export class WarmPool {
  readonly #deps: WarmPoolDeps;
  /** Keys that are wanted from the start on, without being asked for. */
  readonly #hot: readonly string[];
  /** By the folder of the baseline: `base` and `base@<its current version>` are one, and share what waits. */
  readonly #stock = new WarmStock<WarmMachine>((warm) => this.#discard(warm));
  #lastTaken = 0;

  constructor(deps: WarmPoolDeps, hot: readonly string[]) {
    this.#deps = deps;
    this.#hot = hot;
  }

  /** A machine that is nobody's from now on but the caller's; undefined when none is ready. */
  take(key: string): WarmMachine | undefined {
    this.#lastTaken = Date.now();
    const pool = this.#want(key);
    if (!pool) return undefined;
    for (let warm = pool.ready.shift(); warm; warm = pool.ready.shift()) {
      if (!warm.qmp.isClosed) return warm;
      void this.#discard(warm);
    }
    return undefined;
  }

  /** Ready machines per baseline. */
  get counts(): { template: string; size: string; ready: number }[] {
    return [...this.#stock.shelves].flatMap(([dir, { ready }]) => {
      const manifest = this.#deps.baselines.at(dir)?.manifest;
      return manifest ? [{ template: manifest.template, size: manifest.size, ready: ready.length }] : [];
    });
  }

  /** Ends the machine that is wanted least, for whoever needs its memory; false when none is left. */
  async giveUpOne(): Promise<boolean> {
    const isGivenUp = await this.#stock.giveUpOne();
    if (isGivenUp) this.#deps.log.info("a start lacks memory: warm machines give way");
    return isGivenUp;
  }

  /** Fills and keeps fresh until told to stop, then ends what it holds. */
  async run(until: AbortSignal): Promise<void> {
    let freshenedAt = Date.now();
    while (!until.aborted) {
      for (const key of this.#hot) this.#want(key);
      await sleep(QUIET_MS / 3, until);
      if (until.aborted) break;
      await this.#fillOne().catch((err: unknown) =>
        this.#deps.log.warn({ err }, "no warm machine could be made ahead"),
      );
      if (Date.now() - freshenedAt < KEEP_ALIVE_MS) continue;
      freshenedAt = Date.now();
      await this.#freshen();
    }
    await this.#stock.endAll();
  }

  #want(key: string) {
    const dir = this.#deps.baselines.get(key)?.dir;
    return dir === undefined ? undefined : this.#stock.want(dir);
  }

  /** Ends a machine that nobody is to have, and removes all of it. */
  async #discard(warm: WarmMachine): Promise<void> {
    warm.agent.close();
    await warm.undo
      .unwind()
      .catch((err: unknown) =>
        this.#deps.log.error({ err, machine: warm.id }, "a warm machine was not removed"),
      );
  }

  async #fillOne(): Promise<void> {
    const { config, baselines } = this.#deps;
    if (Date.now() - this.#lastTaken < QUIET_MS) return;
    for (const [dir, pool] of this.#stock.shelves) {
      const baseline = baselines.at(dir);
      const isHot = Date.now() - pool.wantedAt < HOT_MS;
      if (!baseline || !isHot || pool.ready.length >= config.warmMachines) continue;
      if (freemem() < HEADROOM_BYTES + baseline.manifest.mem_mb * MIB) return;
      pool.ready.push(await this.#make(baseline));
      return;
    }
  }

  async #make(baseline: Baseline): Promise<WarmMachine> {
    const { config, namespaces, gate, log } = this.#deps;
    const release = await gate.reserve(DISK_BYTES);
    const undo = new UndoStack();
    try {
      const id = `${randomId()}-1`;
      const slot = await namespaces.take("allow");
      undo.push("slot", () => namespaces.discard(slot));
      const { template, size } = baseline.manifest;
      const spec = { template, size, hostname: "warm", no_sudo: false };
      // `starting`: a restarted daemon removes it.
      await writeEntry(config.dataDir, { machine_id: id, spec, state: "starting", slot: slot.number });
      undo.push("journal", () => removeEntry(config.dataDir, id));
      const dir = machineDir(config.dataDir, id);
      const parent = await prepareFiles(dir, slot, baseline);
      const { process, qmp } = await launch(this.#deps, undo, {
        dir,
        slot,
        parent,
        isVerified: baseline.isVerified,
      });
      const agent = new AgentClient(path.join(dir, "run/agent.sock"));
      const warm = { id, slot, process, qmp, agent, undo };
      await warmUp(warm);
      log.info({ machine: id, template, size }, "warm machine ready");
      return warm;
    } catch (error) {
      await undo.unwind();
      throw error;
    } finally {
      release();
    }
  }

  /** One after the other: a create that comes meanwhile takes one of the rest. */
  async #freshen(): Promise<void> {
    for (const [dir, pool] of this.#stock.shelves) {
      const isHot = Date.now() - pool.wantedAt < HOT_MS;
      for (const warm of [...pool.ready])
        await this.#stock.borrow(pool, warm, async () => isHot && (await isAlive(warm)));
      if (!isHot) this.#stock.shelves.delete(dir);
    }
  }
}

/** With another identity first: taking one on is what the machine will do next. */
async function warmUp(warm: WarmMachine): Promise<void> {
  await warm.qmp.execute("cont");
  await resumeAs(warm.agent, { identity: { hostname: "warm", no_sudo: false } });
  for (const argv of WARM_UP) await runToEnd(warm.agent, argv);
  await standStill(warm);
}

async function isAlive(warm: WarmMachine): Promise<boolean> {
  try {
    await warm.qmp.execute("cont");
    await warm.agent.command("/v1/thaw");
    await runToEnd(warm.agent, ["true"]);
    await standStill(warm);
    return true;
  } catch {
    return false;
  }
}

/** Frozen, so that no user process runs between `cont` and the reseed. */
async function standStill(warm: WarmMachine): Promise<void> {
  await warm.agent.command("/v1/freeze");
  await warm.qmp.execute("stop");
}

async function runToEnd(agent: AgentClient, argv: string[]): Promise<void> {
  const frames = await execInGuest(agent, { argv, env: {}, timeout_ms: COMMAND_LIMIT_MS });
  for await (const _ of frames) {
    // Only the side effects matter: translated code, and pages in memory.
  }
}
