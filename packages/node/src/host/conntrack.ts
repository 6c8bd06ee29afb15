/** Sizes, watches and clears the host's connection tracking table (conntrack). */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { fileOfHostSetting } from "@vivarium/contract/node";
import { MIB } from "@vivarium/kit/sizes";
import { changeHostSetting } from "./host-network.ts";
import { run } from "./run.ts";
import type { Slot } from "./slots.ts";

/** Size of the socket buffer for events that the program has not read yet. */
const BUFFER_BYTES = 2 * MIB;

const MOST_FLOWS = fileOfHostSetting("conntrack_max");
/** Table entries for the host's own flows, and for one machine's: open, just closed, and opened for it by the gateway. */
const FLOWS_OF_HOST = 65_536;
const FLOWS_OF_MACHINE = 12_288;

/** Raises the limit so that no guest's flows push others out of the table. A higher limit of the operator stays. */
export async function raiseFlowLimit(
  machines: number,
  file = MOST_FLOWS,
  change = changeHostSetting,
): Promise<void> {
  const needed = FLOWS_OF_HOST + machines * FLOWS_OF_MACHINE;
  if (Number(await readFile(file, "utf8")) < needed) await change("conntrack_max", String(needed));
}

/** Makes the kernel count the bytes of flows, which it does for new flows only. */
export async function countBytesOfFlows(): Promise<void> {
  await changeHostSetting("conntrack_acct", "1");
}

/**
 * Calls `onLine` per beginning and end of a flow, and `onLost` when events were lost, until the signal aborts.
 * Rejects if it cannot continue. `enter`: a command prefix that enters another network namespace.
 */
export async function watchFlows(
  { onLine, onLost }: { onLine: (line: string) => void; onLost: () => void },
  until: AbortSignal,
  enter: string[] = [],
): Promise<void> {
  if (until.aborted) return;
  const watch = ["conntrack", "-E", "-e", "NEW,DESTROY", "-o", "id", "--buffer-size", String(BUFFER_BYTES)];
  const [program = "", ...args] = [...enter, ...watch];
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  const stop = () => child.kill("SIGKILL");
  until.addEventListener("abort", stop, { once: true });
  createInterface({ input: child.stdout }).on("line", onLine);
  createInterface({ input: child.stderr }).on("line", (line) => {
    if (line.includes("ENOBUFS")) onLost();
  });
  try {
    const [code, signal] = await once(child, "close");
    if (!until.aborted) throw new Error(`conntrack ended: ${signal ?? `exit code ${code}`}`);
  } finally {
    until.removeEventListener("abort", stop);
  }
}

/** Deletes the flows of the slot's machine, so that their log lines are written. */
export async function forgetFlows(slot: Slot): Promise<void> {
  // The machine's element in the set that counts its open flows. Missing if it never opened one.
  const counted = ["delete", "element", "inet", "vivarium", "flows", `{ ${slot.machineAddress} }`];
  await run("nft", counted).catch(() => undefined);
  for (const side of ["--orig-src", "--orig-dst"]) {
    await run("conntrack", ["-D", side, slot.machineAddress], { ignored: /0 flow entries|ENOENT/ });
  }
}
