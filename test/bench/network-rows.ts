/**
 * Rows about the network of sessions (docs/design/network.md): ways out by NAT and through the gateway beside a bare
 * tap and bridge, previews beside the guest's own server, and the time and memory of a namespace.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { FRAME, FrameDecoder } from "@vivarium/contract/guest";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { Client } from "@vivarium/sdk";
import { execInGuest } from "../../packages/node/src/guest/exec.ts";
import { resumeAs } from "../../packages/node/src/machines/handshake.ts";
import type { Loadable } from "../../packages/node/src/snapshots/manifest.ts";
import { eventually } from "../support/eventually.ts";
import { startByHand, TapNamespace } from "../support/machine-by-hand.ts";
import { inNamespacesOfItsOwn } from "../support/network-lab.ts";
import { type ServiceFacts, startService } from "../support/service.ts";
import { PUBLIC } from "../support/world/addresses.ts";
import { DENY, type NetworkPath, pathRows } from "./network-paths.ts";
import { bridgeTo, type Outside, startOutside } from "./outside.ts";
import { APP, APP_PORT, type Door, previewRows } from "./preview-paths.ts";
import type { Row } from "./samples.ts";
import type { SlotEffort } from "./slots-by-hand.ts";

const SLOTS_BY_HAND = fileURLToPath(new URL("./slots-by-hand.ts", import.meta.url));
const EXEC_LIMIT_MS = 300_000;

export interface NetworkEffort {
  slots: SlotEffort;
  paths: SlotEffort["paths"];
  previews: SlotEffort["previews"];
}

/** A guest's processor may be emulated: it gets less work than a namespace. */
export const QUICK_NETWORK: NetworkEffort = {
  slots: {
    setUps: 5,
    held: 20,
    paths: { rounds: 2, connections: 20, mib: 64 },
    previews: { rounds: 2, requests: 20, mib: 32 },
  },
  paths: { rounds: 2, connections: 10, mib: 8 },
  previews: { rounds: 2, requests: 10, mib: 8 },
};
export const FULL_NETWORK: NetworkEffort = {
  slots: {
    setUps: 20,
    held: 100,
    paths: { rounds: 10, connections: 30, mib: 256 },
    previews: { rounds: 10, requests: 30, mib: 64 },
  },
  paths: { rounds: 10, connections: 20, mib: 16 },
  previews: { rounds: 10, requests: 20, mib: 16 },
};

/** `baselineOf` finds the baseline of a service from which a machine is loaded by hand. */
export async function networkRows(
  baselineOf: (facts: ServiceFacts) => Promise<Loadable>,
  effort: NetworkEffort,
): Promise<Row[]> {
  const byHand = rowsWithoutMachines(effort.slots);
  const undo = new UndoStack();
  try {
    const outside = await startOutside();
    undo.push("outside", () => outside.close());
    // A service of their own, with its own name server.
    const service = await startService({ env: { VIV_RESOLVERS: PUBLIC.resolver } });
    undo.push("service", () => service.stop());
    const { facts } = service;
    const client = new Client({ url: facts.url, apiKey: facts.apiKey });
    const bare = await bareMachine(undo, outside, facts, await baselineOf(facts));
    const allow = await session(undo, client, "NAT (allow)", { mode: "allow", allow: [] });
    const deny = await session(undo, client, "gateway (deny)", DENY);
    const doors = await exposedServer(client, deny.id);
    return [
      ...byHand,
      ...(await pathRows("", [bare, allow.path, deny.path], effort.paths)),
      ...(await previewRows("", doors, effort.previews)),
    ];
  } finally {
    await undo.unwind();
  }
}

/** In a process of its own, in namespaces and rules that nothing else uses. */
export function rowsWithoutMachines(effort: SlotEffort): Row[] {
  const folder = mkdtempSync(join(tmpdir(), "viv-bench-"));
  const out = join(folder, "rows.json");
  const args = ["--out", out, "--effort", JSON.stringify(effort)];
  const [program = "", ...argv] = inNamespacesOfItsOwn(SLOTS_BY_HAND, args);
  try {
    const { status } = spawnSync(program, argv, { stdio: ["ignore", 2, 2] });
    if (status !== 0) throw new Error(`the rows without machines ended with ${status}`);
    return JSON.parse(readFileSync(out, "utf8"));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The floor: the same machine, loaded by hand, with nothing between its tap and the outside but a bridge. */
async function bareMachine(
  undo: UndoStack,
  outside: Outside,
  facts: ServiceFacts,
  baseline: Loadable,
): Promise<NetworkPath> {
  const network = await TapNamespace.make("bench");
  undo.push("tap", () => network.remove());
  await bridgeTo(outside, network.name);
  const machine = await startByHand(baseline, join(facts.dataDir, "pool"), network);
  undo.push("machine", () => machine.end());
  await machine.go();
  await resumeAs(machine.agent, { identity: { hostname: "bench", no_sudo: false } });
  const run = async (argv: string[]) => {
    const decoder = new FrameDecoder();
    const output = { [FRAME.stdout]: "", [FRAME.stderr]: "" };
    for await (const bytes of await execInGuest(machine.agent, { argv, env: {}, timeout_ms: EXEC_LIMIT_MS }))
      for (const { type, payload } of decoder.push(bytes))
        if (type === FRAME.stdout || type === FRAME.stderr) output[type] += payload;
    if (output[FRAME.stdout] === "") throw new Error(`the client program failed: ${output[FRAME.stderr]}`);
    return output[FRAME.stdout];
  };
  return { name: "bare tap + bridge", run };
}

async function session(
  undo: UndoStack,
  client: Client,
  name: string,
  egress: { mode: "allow" | "deny"; allow: string[] },
): Promise<{ id: string; path: NetworkPath }> {
  const { session_id: id } = await client.sessions.create({ egress });
  undo.push("session", () => client.sessions.delete(id));
  await client.sessions.waitUntilLive(id);
  const run = async (command: string[]) => {
    const result = await client.sessions.exec(id, { command, timeout_ms: EXEC_LIMIT_MS });
    if (result.exit_code !== 0) throw new Error(`${name}: the client program failed: ${result.stderr}`);
    return result.stdout;
  };
  return { id, path: { name, run } };
}

async function exposedServer(client: Client, id: string): Promise<{ direct: Door; preview: Door }> {
  const guest = client.session(id);
  await guest.processes.start({ name: "app", command: ["python3", "-c", APP] });
  const { preview_url, guest_ip } = await guest.expose(APP_PORT, { visibility: "public" });
  if (guest_ip === undefined) throw new Error(`session ${id} has no address on this host`);
  const { host: name, port } = new URL(preview_url);
  const direct = { host: guest_ip, port: APP_PORT };
  await eventually(() => fetch(`http://${direct.host}:${direct.port}/1`), EXEC_LIMIT_MS);
  return { direct, preview: { host: "127.0.0.1", port: Number(port), name } };
}
