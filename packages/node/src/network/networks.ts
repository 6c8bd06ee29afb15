/**
 * Applies network policies of machines in the kernel and in the gateway's tables, and knows which slot has which
 * machine under which spec. A change is in force in both when it returns.
 */
import type { GatewaySlot, Pin } from "@vivarium/contract/gateway";
import type { NetworkSpec } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import type { HostNetwork } from "../host/host-network.ts";
import { nftIn } from "../host/netns.ts";
import type { Slot } from "../host/slots.ts";
import { NodeError } from "../node-error.ts";
import type { Connections } from "./connections.ts";
import type { GatewayLink } from "./gateway-link.ts";
import { allowsPin, kernelPolicyOf, networkWithoutEntries } from "./kernel-policy.ts";
import type { KeptPin } from "./pins.ts";
import { readTable } from "./read-table.ts";
import {
  digestOf,
  learn,
  type PolicyChange,
  policyChange,
  type RulesetInput,
  rulesetOf,
  TABLE,
} from "./ruleset.ts";
import { type SlotMachine, SlotNetwork } from "./slot-network.ts";

const CONFIRM_MS = 5_000;
const RETRY_MS = 1_000;
/** Most pins of one machine that wait to be loaded into the kernel. */
const MOST_WAITING_PINS = 32;
/**
 * A mark is the conntrack mark of the flows that a policy allowed. A prepared namespace has the first one, and a
 * machine whose policy differs from the prepared one starts with the second. Each change of the egress policy uses
 * the next one.
 */
const PREPARED_MARK = 1;
const FIRST_MARK = 2;

export interface NetworksInit {
  host: HostNetwork;
  closeSmtp: boolean;
  link: GatewayLink;
  /** Is notified when a session gets or loses a machine. */
  connections: Pick<Connections, "stream" | "machinesChanged" | "confirmed">;
  /** Writes the spec beside the machine's journal, durably. */
  keep: (machineId: string, kept: KeptNetwork) => Promise<void>;
  /** Writes its pins, until the next reboot: a change after a restart of the daemon would end their flows otherwise. */
  keepPins?: (machineId: string, pins: KeptPin[]) => Promise<void>;
  log: Log;
}

/** The current spec and mark of a machine whose spec changed since its start. */
export interface KeptNetwork {
  spec: NetworkSpec;
  mark: number;
}

export class Networks {
  readonly #init: NetworksInit;
  readonly #bySlot = new Map<number, SlotNetwork>();

  constructor(init: NetworksInit) {
    this.#init = init;
  }

  /** The nft rules of a namespace that is prepared for a machine of this mode. */
  preparedRuleset(slot: Slot, mode: "allow" | "deny"): string {
    const policy = kernelPolicyOf(networkWithoutEntries(mode));
    return rulesetOf(this.#rulesetInput(slot), policy, PREPARED_MARK);
  }

  /** Registers a namespace with these rules, and makes the gateway listen on its slot. */
  addPrepared(slot: Slot, mode: "allow" | "deny"): void {
    const policy = kernelPolicyOf(networkWithoutEntries(mode));
    this.#bySlot.set(slot.number, new SlotNetwork({ slot, mark: PREPARED_MARK, policy }));
    this.#init.link.publish();
  }

  /** Gives a prepared slot to a machine that has not run yet. The kernel has its policy when this returns. */
  async assign(slot: Slot, machineId: string, spec: NetworkSpec): Promise<void> {
    const network = this.#get(slot);
    const policy = kernelPolicyOf(spec);
    if (JSON.stringify(policy) !== JSON.stringify(network.policy)) {
      const { generation } = spec;
      await this.#load(network, { policy, mark: FIRST_MARK, generation, limitBytes: policy.limitBytes });
      network.mark = FIRST_MARK;
    }
    network.machine = { machineId, spec, version: this.#init.link.publish(), isApplied: true };
    this.#init.connections.machinesChanged();
  }

  /**
   * Registers a machine that outlived the daemon. The kernel has its spec already, unless a change was interrupted. If
   * the operator opened other private addresses meanwhile, all its flows are judged again.
   */
  async adopt(
    slot: Slot,
    machineId: string,
    started: NetworkSpec,
    kept: KeptNetwork | undefined,
    pins: readonly KeptPin[] = [],
  ): Promise<void> {
    const spec = kept?.spec ?? started;
    const policy = kernelPolicyOf(spec);
    const mark = kept?.mark ?? FIRST_MARK;
    const network = new SlotNetwork({ slot, mark, policy });
    network.pins.restore(pins);
    this.#bySlot.set(slot.number, network);
    network.machine = { machineId, spec, version: this.#init.link.publish(), isApplied: true };
    this.#init.connections.machinesChanged();
    const found = await readInForce(slot);
    if (found === undefined) {
      // The namespace has the rules of another version of this daemon.
      const rules = rulesetOf(this.#rulesetInput(slot), policy, mark, spec.generation);
      await nftIn(slot.netns, ["-f", "-"], rules);
      return;
    }
    network.kernelMark = found.mark;
    if (!kept) network.mark = found.mark;
    const isOutdated = found.opened !== digestOf(this.#init.host.open);
    if (isOutdated) {
      network.mark = Math.max(network.mark, found.mark) + 1;
      await this.#init.keep(machineId, { spec, mark: network.mark });
    }
    if (isOutdated || (kept && (found.mark !== mark || found.generation !== spec.generation)))
      await this.#load(network, this.#changeFor(network, await this.#limitFor(network)));
  }

  async change(machineId: string, spec: NetworkSpec): Promise<void> {
    const network = this.#find(machineId);
    const machine = await network.queue.run(() => this.#accept(network, machineId, spec));
    const { link } = this.#init;
    // Changes in the same version of the tables wait for the same confirmation.
    if (await link.confirmed(machine.version, CONFIRM_MS)) return;
    throw new NodeError(
      "network_unconfirmed",
      link.isConnected
        ? "the gateway did not confirm the change in time; it is kept and goes on being applied"
        : "the gateway of this node is not connected; the change is kept and applied when it is",
    );
  }

  /**
   * Waits until the gateway knows this machine and its session's Connections, if a gateway is connected. Without one, names
   * stay refused.
   */
  async known(slot: Slot, limitMs: number): Promise<void> {
    const { link, connections, log } = this.#init;
    const machine = this.#get(slot).machine;
    if (!machine) return;
    const confirmed = await Promise.all([
      !link.isConnected || link.confirmed(machine.version, limitMs),
      !connections.stream.isConnected || connections.confirmed(sessionIdOf(machine.machineId), limitMs),
    ]);
    if (confirmed.includes(false))
      log.warn({ machine: machine.machineId }, "the gateway is slow to take a machine in");
  }

  /** Loads a pin into the kernel. Pins that arrive during another load are loaded together. */
  async pin(pin: Pin): Promise<void> {
    const network = this.#find(pin.machine_id);
    refuseOutdated(network, pin);
    const waiting = [...network.waitingPins, pin];
    if (waiting.length > MOST_WAITING_PINS || !network.pins.admits(waiting))
      throw new NodeError("network_unconfirmed", "too many addresses are to be opened for this machine");
    network.waitingPins = waiting;
    network.pinning ??= network.queue.run(() => this.#pinWaiting(network));
    await network.pinning;
    refuseOutdated(network, pin);
  }

  async #pinWaiting(network: SlotNetwork): Promise<void> {
    const pins = network.waitingPins.filter((pin) => isCurrent(network, pin));
    network.waitingPins = [];
    network.pinning = undefined;
    const [pin] = pins;
    if (!pin) return;
    await nftIn(network.slot.netns, ["-f", "-"], learn(network.pins.add(pins)));
    await this.#keepPins(network, pin.machine_id);
  }

  async #keepPins({ pins }: SlotNetwork, machineId: string): Promise<void> {
    await this.#init
      .keepPins?.(machineId, pins.all())
      .catch((err: unknown) => this.#init.log.warn({ machine: machineId, err }, "pins are not kept"));
  }

  /**
   * Call when the machine is gone. Resolves once the gateway no longer attributes connections of this slot to it, or at
   * once if the slot never had a machine.
   */
  async release(slot: Slot): Promise<void> {
    const known = this.#bySlot.get(slot.number);
    this.#bySlot.delete(slot.number);
    const version = this.#init.link.publish();
    this.#init.connections.machinesChanged();
    if (known && !known.machine) return;
    await this.#init.link.outdated(version);
  }

  get(slot: Slot): SlotNetwork | undefined {
    return this.#bySlot.get(slot.number);
  }

  all(): SlotNetwork[] {
    return [...this.#bySlot.values()];
  }

  /** Sessions that have a machine in a slot. */
  sessionIds(): Set<string> {
    return new Set(this.all().flatMap(({ machine }) => (machine ? [sessionIdOf(machine.machineId)] : [])));
  }

  toGatewaySlots(): GatewaySlot[] {
    return this.all().map(({ slot, machine }) => ({
      host_address: slot.hostAddress,
      machine_address: slot.machineAddress,
      ...(machine && {
        machine: {
          machine_id: machine.machineId,
          session_id: sessionIdOf(machine.machineId),
          generation: machine.spec.generation,
          egress: machine.spec.egress,
          bound_hosts: machine.spec.bound_hosts,
        },
      }),
    }));
  }

  /** Publishes the spec to the gateway first; the kernel has it when this returns. */
  async #accept(network: SlotNetwork, machineId: string, spec: NetworkSpec): Promise<SlotMachine> {
    const current = network.machine;
    if (current?.machineId !== machineId) throw new NodeError("machine_gone", "the machine has ended");
    const isSame = JSON.stringify(current.spec) === JSON.stringify(spec);
    const [given, known] = [spec.generation, current.spec.generation];
    if (given < known || (given === known && !isSame))
      throw new NodeError("network_conflict", `generation ${given} came after generation ${known}`);
    if (isSame && current.isApplied) return current;
    const limitBytes = await this.#limitFor(network, spec);
    if (!isSame) {
      // Under the same egress policy the mark stays, so that open flows are not judged again.
      const isSamePolicy = JSON.stringify(policyOf(current.spec)) === JSON.stringify(policyOf(spec));
      const mark = isSamePolicy ? network.mark : network.mark + 1;
      await this.#init.keep(machineId, { spec, mark });
      network.mark = mark;
      network.machine = { machineId, spec, version: this.#init.link.publish(), isApplied: false };
    }
    const machine = network.machine as SlotMachine;
    try {
      await this.#load(network, this.#changeFor(network, limitBytes));
    } catch (cause) {
      void this.#applyLater(network, machine);
      throw new NodeError("network_unconfirmed", "the kernel did not take the change; it is kept", { cause });
    }
    machine.isApplied = true;
    return machine;
  }

  async #applyLater(network: SlotNetwork, machine: SlotMachine): Promise<void> {
    const isStillWanted = () => this.get(network.slot) === network && network.machine === machine;
    while (isStillWanted() && !machine.isApplied) {
      await sleep(RETRY_MS);
      await network.queue
        .run(async () => {
          if (!isStillWanted()) return;
          await this.#load(network, this.#changeFor(network, await this.#limitFor(network)));
          machine.isApplied = true;
        })
        .catch((err: unknown) =>
          this.#init.log.error({ machine: machine.machineId, err }, "a change of network is not in force"),
        );
    }
  }

  /** The change to the current spec. Keeps pins whose name it allows on their port, for open flows even after expiry. */
  #changeFor(network: SlotNetwork, limitBytes: number | undefined): PolicyChange {
    const { mark, kernelMark, pins, machine } = network;
    const { spec } = machine as SlotMachine;
    const change = { policy: kernelPolicyOf(spec), mark, generation: spec.generation, limitBytes };
    if (mark === kernelMark) return change;
    return { ...change, pins: pins.keep((host, port) => allowsPin(spec, host, port)) };
  }

  /** The kernel quota for the spec's limit on `egress_bytes`: only the quota counts the packet that was cut. */
  async #limitFor(network: SlotNetwork, spec = network.machine?.spec): Promise<number | undefined> {
    const limit = spec?.egress_limit_bytes;
    if (limit === undefined) return undefined;
    const { netns } = network.slot;
    const { quotaBytes, egressBytes, isQuotaSpent } = await readTable(netns);
    // A spent quota does not report what it counted past its limit, so it is reset. Meanwhile the `capped` set cuts
    // the machine off.
    if (isQuotaSpent) await nftIn(netns, ["reset", "quota", ...TABLE.split(" "), "cap"]);
    return Math.max(0, limit + ((isQuotaSpent ? 0 : quotaBytes) - egressBytes));
  }

  async #load(network: SlotNetwork, change: PolicyChange): Promise<void> {
    const { slot } = network;
    await nftIn(slot.netns, ["-f", "-"], policyChange(this.#rulesetInput(slot), change));
    network.changes++;
    network.policy = change.policy;
    network.kernelMark = change.mark;
    // Pins that a policy ended must not reopen under a later policy after a restart of the daemon.
    if (change.pins && network.machine) await this.#keepPins(network, network.machine.machineId);
  }

  #rulesetInput({ hostAddress, machineAddress }: Slot): RulesetInput {
    const { host, closeSmtp } = this.#init;
    return { hostAddress, machineAddress, never: host.never, open: host.open, closeSmtp };
  }

  #get(slot: Slot): SlotNetwork {
    const network = this.#bySlot.get(slot.number);
    if (!network) throw new Error(`slot ${slot.number} has no network`);
    return network;
  }

  #find(machineId: string): SlotNetwork {
    for (const network of this.#bySlot.values()) if (network.machine?.machineId === machineId) return network;
    throw new NodeError("machine_not_found", `no machine ${machineId} on this node`);
  }
}

const sessionIdOf = (machineId: string) => machineId.replace(/-\d+$/, "");

/** The part of a spec that open flows are judged by. */
const policyOf = ({ egress, bound_hosts }: NetworkSpec) => ({ egress, bound_hosts });

function isCurrent({ machine }: SlotNetwork, pin: Pin): boolean {
  return machine?.machineId === pin.machine_id && machine.spec.generation === pin.generation;
}

function refuseOutdated(network: SlotNetwork, pin: Pin): void {
  if (!isCurrent(network, pin))
    throw new NodeError("network_conflict", "the machine has another generation by now");
}

/** The generation and openings that the kernel enforces. Undefined if another version of this daemon made the table. */
async function readInForce(
  slot: Slot,
): Promise<{ mark: number; generation: number; opened: string } | undefined> {
  const list = ["list", "chain", ...TABLE.split(" "), "judged"];
  const text = await nftIn(slot.netns, list).catch((error: Error) => {
    if (/No such file/.test(error.message)) return "";
    throw error;
  });
  const mark = /ct mark (0x[0-9a-f]+|\d+)/.exec(text)?.[1];
  const generation = /comment "generation (\d+)"/.exec(text)?.[1] ?? 0;
  // A table without the comment is of a version that opens nothing.
  const opened = /comment "open ([0-9a-f]+)"/.exec(text)?.[1] ?? digestOf();
  return mark === undefined ? undefined : { mark: Number(mark), generation: Number(generation), opened };
}
