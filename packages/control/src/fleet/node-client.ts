/** Makes the calls of contract/node. */
import { Agent, type IncomingMessage } from "node:http";
import type { Duplex, Readable } from "node:stream";
import {
  FRAME,
  type Frame,
  FrameDecoder,
  FrameError,
  ListReader,
  type ListShape,
  type TerminalSpec,
  type TunnelSpec,
} from "@vivarium/contract/guest";
import {
  BuildList,
  BuildLog,
  type BuildSpec,
  BuildStatus,
  type ConnectionLease,
  ConnectionsKept,
  ConnectionsWanted,
  type ExecCall,
  MachineList,
  MachineStatus,
  NetworkReport,
  type NetworkSpec,
  type NodeErrorCode,
  NodeInfo,
  type Packed,
  PackResult,
  type PreviewTable,
  type SessionConnections,
  SnapshotList,
  type SnapshotSpec,
  SnapshotStatus,
  type StartSpec,
  UnpackResult,
  VolumeList,
  VolumeStatus,
  Wake,
  type WakeOutcome,
} from "@vivarium/contract/node";
import { z } from "zod";
import { type ArchiveAccess, callWithChunks } from "./archive-call.ts";
import { NodeError, type NodeFailure } from "./node-error.ts";
import { type Exchange, exchange, exchangeJson, readAll, readJson } from "./node-http.ts";
import { openNodeStream } from "./node-stream.ts";

const SHORT_CALL_MS = 10_000;
const DELETE_MS = 60_000;
/** A volume is made within a second or two; after a minute its row is given up. */
const VOLUME_MS = 30_000;
const CONTINUE_MS = 30_000;
/** Time limit of changes of the network, which the node answers or refuses within 5 s. */
const NETWORK_MS = 15_000;
/** Time limit of the long poll for wakes, which the node answers after 20 s at the latest. */
const WAKES_MS = 30_000;
const WakeList = z.object({ wakes: z.array(Wake) });
const CLOSED: ReadonlySet<string> = new Set(["broken", "unreachable"] satisfies NodeFailure[]);
const LAST_FRAMES: ReadonlySet<Frame["type"]> = new Set([FRAME.exit, FRAME.error, FRAME.eof]);

/** A call below `guest/`, as contract/guest defines it. */
export interface GuestCall {
  method: Exchange["method"];
  /** Without the query: `files/read`. */
  path: string;
  query?: Record<string, string | number | boolean | undefined>;
  body?: object | Buffer;
  /** A stream as the body. It uses a connection of its own. */
  source?: Readable;
  signal: AbortSignal;
}

export class NodeClient {
  readonly #socketPath: string;
  readonly #agent = new Agent({ keepAlive: true, maxFreeSockets: 8 });

  constructor(socketPath: string) {
    this.#socketPath = socketPath;
  }

  async info(signal?: AbortSignal): Promise<NodeInfo> {
    return await this.#read(NodeInfo, "info", signal);
  }

  async listMachines(): Promise<MachineStatus[]> {
    return (await this.#read(MachineList, "machines")).machines;
  }

  /** Answers once the machine runs. Repeating the call gives the same answer. With a state key the machine is sealed. */
  async startMachine(
    machineId: string,
    spec: StartSpec,
    signal: AbortSignal,
    stateKey?: Buffer,
  ): Promise<MachineStatus> {
    const answer = await this.#send("PUT", `machines/${machineId}`, signal, spec, stateKey);
    return parseAnswer(MachineStatus, answer);
  }

  /** Answers once nothing of the machine is left. Deleting an absent machine succeeds. */
  async deleteMachine(machineId: string): Promise<void> {
    await this.#send("DELETE", `machines/${machineId}`, AbortSignal.timeout(DELETE_MS));
  }

  /** Continues a stopped machine. For a running one the answer is the same. */
  async continueMachine(
    machineId: string,
    signal = AbortSignal.timeout(CONTINUE_MS),
  ): Promise<MachineStatus> {
    return parseAnswer(MachineStatus, await this.#send("POST", `machines/${machineId}/continue`, signal));
  }

  /** Answers once kernel and gateway apply it. */
  async putNetwork(machineId: string, spec: NetworkSpec): Promise<void> {
    await this.#send("PUT", `machines/${machineId}/network`, AbortSignal.timeout(NETWORK_MS), spec);
  }

  /** Answers once the gateway has exactly these routes. */
  async putPreviews(table: PreviewTable): Promise<void> {
    await this.#send("PUT", "previews", AbortSignal.timeout(NETWORK_MS), table);
  }

  /**
   * Answers once the gateway has them, if a machine of the session runs, with the version that the node has: a newer one if it
   * had that. Hazard: the body has credentials in the clear.
   */
  async putConnections(connections: SessionConnections, over: AbortSignal): Promise<ConnectionsKept> {
    const signal = AbortSignal.any([over, AbortSignal.timeout(NETWORK_MS)]);
    const answer = await this.#send("PUT", `connections/${connections.session_id}`, signal, connections);
    return parseAnswer(ConnectionsKept, answer);
  }

  /** Answers once the gateway has no Connections of this session, which has ended. */
  async deleteConnections(sessionId: string): Promise<void> {
    await this.#send("DELETE", `connections/${sessionId}`, AbortSignal.timeout(NETWORK_MS));
  }

  /** Renews the lease of all Connections. Resolves to the sessions of which the node has another version. */
  async leaseConnections(lease: ConnectionLease): Promise<string[]> {
    const signal = AbortSignal.timeout(SHORT_CALL_MS);
    return parseAnswer(ConnectionsWanted, await this.#send("PUT", "connections", signal, lease)).session_ids;
  }

  /** Counters, and log lines after the cursor. Without a cursor, all lines that the node still has. */
  async networkReport(cursor: string | undefined): Promise<NetworkReport> {
    return await this.#read(NetworkReport, `network/report${queryText({ after: cursor })}`);
  }

  /** Waits for visitors of previews whose sessions are paused. */
  async listWakes(over: AbortSignal): Promise<Wake[]> {
    const signal = AbortSignal.any([over, AbortSignal.timeout(WAKES_MS)]);
    return parseAnswer(WakeList, await this.#send("GET", "wakes", signal)).wakes;
  }

  async answerWake(wakeId: string, outcome: WakeOutcome): Promise<void> {
    const signal = AbortSignal.timeout(SHORT_CALL_MS);
    await this.#send("POST", `wakes/${encodeURIComponent(wakeId)}`, signal, outcome);
  }

  async listBuilds(): Promise<BuildStatus[]> {
    return (await this.#read(BuildList, "builds")).builds;
  }

  /** Undefined if the node has no such build. */
  async findBuild(buildId: string, signal?: AbortSignal): Promise<BuildStatus | undefined> {
    return await orAbsent("build_not_found", () => this.#read(BuildStatus, `builds/${buildId}`, signal));
  }

  /** Lets a build wait for its turn, or begin again if it has failed. Hazard: the body may have a credential in the clear. */
  async putBuild(buildId: string, spec: BuildSpec): Promise<BuildStatus> {
    const signal = AbortSignal.timeout(SHORT_CALL_MS);
    return parseAnswer(BuildStatus, await this.#send("PUT", `builds/${buildId}`, signal, spec));
  }

  /** Undefined if the node has no such build. */
  async readBuildLog(buildId: string): Promise<BuildLog["lines"] | undefined> {
    const log = await orAbsent("build_not_found", () => this.#read(BuildLog, `builds/${buildId}/log`));
    return log?.lines;
  }

  /** Ends a build, and deletes what is left of it. Deleting an absent one succeeds. */
  async deleteBuild(buildId: string): Promise<void> {
    await this.#send("DELETE", `builds/${buildId}`, AbortSignal.timeout(DELETE_MS));
  }

  async listSnapshots(): Promise<SnapshotStatus[]> {
    return (await this.#read(SnapshotList, "snapshots")).snapshots;
  }

  /** Whether the node still has the snapshot. Cheap, because the node does not read the snapshot's contents. */
  async lookAtSnapshot(snapshotId: string, signal: AbortSignal): Promise<"there" | "damaged" | "lost"> {
    try {
      await this.#read(z.unknown(), `snapshots/${snapshotId}`, signal);
      return "there";
    } catch (error) {
      if (error instanceof NodeError && error.code === "snapshot_not_found") return "lost";
      if (error instanceof NodeError && error.code === "snapshot_damaged") return "damaged";
      throw error;
    }
  }

  /** Answers once the snapshot is durable. Repeating the call gives the same answer. */
  async putSnapshot(
    snapshotId: string,
    spec: SnapshotSpec,
    signal: AbortSignal,
    stateKey?: Buffer,
  ): Promise<SnapshotStatus> {
    const answer = await this.#send("PUT", `snapshots/${snapshotId}`, signal, spec, stateKey);
    return parseAnswer(SnapshotStatus, answer);
  }

  /** Packs the snapshot, or the baseline, into an archive, with the chunks of its space at hand. */
  async packSnapshot(snapshotId: string, access: ArchiveAccess, signal: AbortSignal): Promise<Packed> {
    const query = { archive_id: access.archiveId, base: access.base };
    const path = `/v1/snapshots/${snapshotId}/pack${queryText(query)}`;
    const call = { socketPath: this.#socketPath, path, ...access, signal };
    const result = parseAnswer(PackResult, await callWithChunks(call));
    if ("packed" in result) return result.packed;
    throw new NodeError("refused", result.refused.message, { code: result.refused.code });
  }

  /** Answers once the snapshot is durable. One that is there is left as it is. */
  async unpackSnapshot(
    snapshotId: string,
    { contents, bytes, ...access }: ArchiveAccess & { contents: string; bytes: number | undefined },
    signal: AbortSignal,
  ): Promise<SnapshotStatus> {
    const query = { archive_id: access.archiveId, base: access.base, contents, bytes };
    const path = `/v1/snapshots/${snapshotId}/unpack${queryText(query)}`;
    const call = { socketPath: this.#socketPath, path, ...access, signal };
    const result = parseAnswer(UnpackResult, await callWithChunks(call));
    if ("unpacked" in result) return result.unpacked;
    throw new NodeError("refused", result.refused.message, { code: result.refused.code });
  }

  /** Answers once the volume is durable. Repeating the call gives the same answer. */
  async putVolume(volumeId: string, sizeGb: number): Promise<VolumeStatus> {
    const signal = AbortSignal.timeout(VOLUME_MS);
    return parseAnswer(
      VolumeStatus,
      await this.#send("PUT", `volumes/${volumeId}`, signal, { size_gb: sizeGb }),
    );
  }

  async listVolumes(): Promise<VolumeStatus[]> {
    return (await this.#read(VolumeList, "volumes")).volumes;
  }

  /** Deleting an absent volume succeeds. */
  async deleteVolume(volumeId: string): Promise<void> {
    await this.#send("DELETE", `volumes/${volumeId}`, AbortSignal.timeout(DELETE_MS));
  }

  /** Machines that were loaded from the snapshot keep running. Deleting an absent snapshot succeeds. */
  async deleteSnapshot(snapshotId: string): Promise<void> {
    await this.#send("DELETE", `snapshots/${snapshotId}`, AbortSignal.timeout(DELETE_MS));
  }

  /** Resolves once the command is spawned. Ending the iteration, or aborting, kills the command. */
  async exec(machineId: string, call: ExecCall, signal: AbortSignal): Promise<AsyncIterable<Frame>> {
    const path = `/v1/machines/${machineId}/exec`;
    const request = { socketPath: this.#socketPath, method: "POST", path, body: call, signal } as const;
    return readFrames(await this.#exchangeKeptAlive(request));
  }

  async putFile(machineId: string, file: string, content: Buffer, signal: AbortSignal): Promise<void> {
    await this.#send("PUT", `machines/${machineId}/files?path=${encodeURIComponent(file)}`, signal, content);
  }

  /** Resolves with the answer once its headers have arrived. Destroying it, or aborting, ends the work in the guest. */
  async guest(machineId: string, { path, query, ...call }: GuestCall): Promise<IncomingMessage> {
    const target = `/v1/machines/${machineId}/guest/${path}${queryText(query)}`;
    const request = { socketPath: this.#socketPath, path: target, ...call };
    return call.source ? await exchange(request) : await this.#exchangeKeptAlive(request);
  }

  async guestJson<T>(
    machineId: string,
    call: GuestCall,
    { schema, limitBytes }: { schema: z.ZodType<T>; limitBytes: number },
  ): Promise<T> {
    return parseAnswer(schema, await readJson(await this.guest(machineId, call), limitBytes));
  }

  async guestList<Item, End>(
    machineId: string,
    call: GuestCall,
    shape: ListShape<Item, End>,
  ): Promise<{ items: Item[]; end: End }> {
    const reader = new ListReader(shape);
    const items: Item[] = [];
    try {
      for await (const frame of await this.guestFrames(machineId, call))
        for (const item of itemsOf(reader, frame)) items.push(item);
    } catch (error) {
      // Listing changes nothing, so a malformed frame is an answer outside the contract, and not an unknown outcome.
      if (error instanceof NodeError && error.cause instanceof FrameError) throw contractError(error.cause);
      throw error;
    }
    if (reader.end === undefined) throw new NodeError("broken", "the node broke off the list");
    return { items, end: reader.end };
  }

  async guestBytes(machineId: string, call: GuestCall, limitBytes: number): Promise<Buffer> {
    return await readAll(await this.guest(machineId, call), limitBytes);
  }

  async guestFrames(machineId: string, call: GuestCall): Promise<AsyncIterable<Frame>> {
    return readFrames(await this.guest(machineId, call));
  }

  /** A terminal's frames, or the tunnel's bytes, both ways. */
  async openStream(
    machineId: string,
    kind: "terminals" | "tunnel",
    spec: TerminalSpec | TunnelSpec,
    signal: AbortSignal,
  ): Promise<Duplex> {
    const path = `/v1/machines/${machineId}/${kind}`;
    return await openNodeStream({ socketPath: this.#socketPath, path, spec, signal });
  }

  close(): void {
    this.#agent.destroy();
  }

  /**
   * Uses a kept connection if there is one. If it was closed, nothing was done, and the call is made over a new one.
   */
  async #exchangeKeptAlive(call: Exchange): Promise<IncomingMessage> {
    try {
      return await exchange({ ...call, agent: this.#agent });
    } catch (error) {
      if (!(error instanceof NodeError) || error.failure !== "unreachable") throw error;
      return await exchange(call);
    }
  }

  /** The JSON answer of one call, over a connection of its own. */
  async #send(
    method: Exchange["method"],
    path: string,
    signal: AbortSignal,
    body?: object | Buffer,
    stateKey?: Buffer,
  ): Promise<unknown> {
    const call = { socketPath: this.#socketPath, method, path: `/v1/${path}`, body, signal };
    return await exchangeJson({ ...call, ...(stateKey && { stateKey }) });
  }

  async #read<T>(
    schema: z.ZodType<T>,
    path: string,
    signal = AbortSignal.timeout(SHORT_CALL_MS),
  ): Promise<T> {
    const call = { socketPath: this.#socketPath, method: "GET", path: `/v1/${path}`, signal } as const;
    const answer = await exchangeJson({ ...call, agent: this.#agent }).catch((error: unknown) => {
      // A kept connection may have been closed meanwhile. Reading can be repeated.
      if (!(error instanceof NodeError) || !CLOSED.has(error.failure)) throw error;
      return exchangeJson(call);
    });
    return parseAnswer(schema, answer);
  }
}

/** The query with its `?`, or nothing; values that are undefined are left out. */
function queryText(query: GuestCall["query"] = {}): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}=${encodeMinimally(String(value))}`],
  );
  return given.length === 0 ? "" : `?${given.join("&")}`;
}

/** Leaves allowed characters unescaped, so that the query is not longer than the caller's own. */
function encodeMinimally(text: string): string {
  return encodeURIComponent(text).replaceAll(/%(?:2F|3A|40|2C|3B|3F|24)/g, decodeURIComponent);
}

async function* readFrames(response: IncomingMessage): AsyncGenerator<Frame> {
  const decoder = new FrameDecoder();
  let isOver = false;
  try {
    for await (const chunk of response.iterator({ destroyOnReturn: false })) {
      for (const frame of decoder.push(chunk as Buffer)) {
        isOver = LAST_FRAMES.has(frame.type);
        yield frame;
      }
    }
  } catch (cause) {
    throw new NodeError("broken", "the node broke off the output", { cause });
  } finally {
    // After the last frame the answer ends by itself, and the connection serves another call.
    if (isOver) response.resume();
    else response.destroy();
  }
}

function* itemsOf<Item>(reader: ListReader<Item, unknown>, frame: Frame): Generator<Item> {
  // The agent's error text is dropped, because lists report no messages of a guest.
  if (frame.type === FRAME.error) throw new NodeError("broken", "the machine could not finish the list");
  try {
    yield* reader.read(frame);
  } catch (cause) {
    throw contractError(cause);
  }
}

/** Undefined if the node refuses the call with this code. */
async function orAbsent<T>(code: NodeErrorCode, call: () => Promise<T>): Promise<T | undefined> {
  return await call().catch((error: unknown) => {
    if (error instanceof NodeError && error.code === code) return undefined;
    throw error;
  });
}

function parseAnswer<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw contractError(result.error);
}

function contractError(cause: unknown): NodeError {
  return new NodeError("garbled", "the node's answer does not fit the contract", { cause });
}
