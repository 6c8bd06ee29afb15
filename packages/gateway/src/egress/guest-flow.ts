/** One connection of a guest to the gateway (a flow), from its accept to its line in the egress log. */
import type { Socket } from "node:net";
import type { EgressEntry, EgressReason } from "@vivarium/contract/gateway";
import { pipelineOf } from "@vivarium/http1/pipelining";
import type { EgressLog } from "../egress-log/lines.ts";
import { judge } from "../policy/rules.ts";
import type { CurrentTables, MachineSlot } from "../tables/current-tables.ts";

export interface FlowDeps {
  tables: CurrentTables;
  egressLog: EgressLog;
}

export interface FlowInput {
  guest: Socket;
  slot: MachineSlot;
  kind: "http" | "tls";
  /** The port that the guest dialled: 80 or 443. */
  port: number;
}

const NO_BYTES = { bytes_out: 0, bytes_in: 0 };

export class GuestFlow {
  readonly guest: Socket;
  readonly port: number;
  readonly machineId: string;
  readonly sessionId: string;
  readonly #deps: FlowDeps;
  readonly #opened: FlowInput;
  readonly #at = new Date().toISOString();
  readonly #upstreams = new Set<Socket>();
  #host: string | undefined;
  #address: string | undefined;
  /** Whether a server was connected: bytes of the guest may have left. */
  isConnected = false;
  /** Whether its TLS passes unread: it ends when a Connection binds the host. */
  passesUnread = false;
  /** Why the host is allowed; undefined until one was admitted. Nothing may be dialled before. */
  #admitted: EgressReason | undefined;
  #refused: EgressReason | undefined;

  constructor(deps: FlowDeps, opened: FlowInput) {
    this.#deps = deps;
    this.#opened = opened;
    this.guest = opened.guest;
    this.port = opened.port;
    this.machineId = opened.slot.machineId;
    this.sessionId = opened.slot.sessionId;
    this.guest.once("close", () => this.#end());
  }

  /** The host that this connection is for; undefined until one was admitted. */
  get admittedHost(): string | undefined {
    return this.#admitted === undefined ? undefined : this.#host;
  }

  get isOpen(): boolean {
    return !this.guest.destroyed && this.#refused === undefined;
  }

  /** Number of requests whose responses have not ended. Nothing else may be written to the guest meanwhile. */
  get unanswered(): number {
    return pipelineOf(this.guest).unanswered;
  }

  /** Whether the current tables allow the host. If so, the flow is for this host, and is cut when tables forbid it. */
  admits(host: string): boolean {
    const slot = this.#slotNow;
    if (slot?.machineId !== this.machineId) return this.deny("policy_changed", host);
    const { isAllowed, reason } = judge(slot.rules, host, this.port);
    if (!isAllowed) return this.deny(reason, host);
    this.#host = host;
    this.#admitted = reason;
    return true;
  }

  /** Whether a Connection of the session binds this host, by the tables. */
  isBoundTo(host: string): boolean {
    return this.#slotNow?.boundHosts.has(host) ?? false;
  }

  /** Adds a connection to a server. It is destroyed when the flow ends. */
  addUpstream(socket: Socket, address: string): void {
    this.#address = address;
    this.#upstreams.add(socket);
    socket.once("close", () => this.#upstreams.delete(socket));
  }

  /** Records the first reason of a refusal for the log. Does not cut the flow: the guest still gets an answer. */
  deny(reason: EgressReason, host?: string): false {
    this.#refused ??= reason;
    this.#host ??= host;
    return false;
  }

  /** Resets the guest's connection and closes the servers'. */
  cut(reason: EgressReason): void {
    this.deny(reason);
    for (const upstream of this.#upstreams) upstream.destroy();
    this.guest.resetAndDestroy();
  }

  /** Cuts the flow when the current tables do not allow it, or bind a host that it passes unread to. */
  judgeAgain(): void {
    const slot = this.#slotNow;
    const isSame = slot?.machineId === this.machineId;
    const isStillAllowed =
      this.#admitted === undefined ||
      this.#host === undefined ||
      (slot !== undefined && judge(slot.rules, this.#host, this.port).isAllowed);
    const isReachable = this.#address === undefined || !this.#deps.tables.isNever(this.#address, this.port);
    const isBound = this.passesUnread && this.#host !== undefined && this.isBoundTo(this.#host);
    if (!isSame || !isStillAllowed || !isReachable || isBound) this.cut("policy_changed");
  }

  get #slotNow(): MachineSlot | undefined {
    return this.#deps.tables.slotAt(this.#opened.slot.hostAddress);
  }

  #end(): void {
    for (const upstream of this.#upstreams) upstream.destroy();
    const refused = this.#admitted === undefined ? (this.#refused ?? "no_name") : this.#refused;
    const carried = { bytes_out: this.guest.bytesRead, bytes_in: this.guest.bytesWritten };
    // Bytes that reached an allowed host count as allowed, whatever was refused or unanswered later.
    const isRefused = refused !== undefined && !(this.isConnected && refused === "not_reachable");
    if (this.#admitted !== undefined && (this.isConnected || !isRefused))
      this.#logEntry("allowed", this.#admitted, carried);
    if (isRefused) this.#logEntry("denied", refused, this.isConnected ? NO_BYTES : carried);
  }

  #logEntry(verdict: EgressEntry["verdict"], reason: EgressReason, bytes: typeof NO_BYTES): void {
    this.#deps.egressLog.add({
      machine_id: this.machineId,
      at: this.#at,
      kind: this.#opened.kind,
      ...(this.#host !== undefined && { host: this.#host }),
      ...(this.#address !== undefined && { address: this.#address }),
      port: this.port,
      ...bytes,
      verdict,
      reason,
    });
  }
}
