/** The host's table of connections: who talked to whom, and how much. */
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { run } from "./run.ts";
import type { Slot } from "./slots.ts";

/** Room for events that the daemon has not read yet. */
const BUFFER_BYTES = 2 * 1024 * 1024;

const MOST_FLOWS = "/proc/sys/net/netfilter/nf_conntrack_max";
/** The host's own, and those of one machine: open, just closed, and dialled for it by the gateway. */
const FLOWS_OF_HOST = 65_536;
const FLOWS_OF_MACHINE = 12_288;

/** No guest's flows keep another's, or the host's own, out of the table. What the operator made larger stays. */
export async function makeRoomForFlows(machines: number, file = MOST_FLOWS): Promise<void> {
  const needed = FLOWS_OF_HOST + machines * FLOWS_OF_MACHINE;
  if (Number(await readFile(file, "utf8")) < needed) await writeFile(file, String(needed));
}

export async function countBytesOfFlows(): Promise<void> {
  await writeFile("/proc/sys/net/netfilter/nf_conntrack_acct", "1");
}

/**
 * Calls back with every beginning and end of a flow, one line each, until told to stop, and when some were lost. Rejects
 * when it cannot go on. `enter` is a command before it that leads into another network namespace.
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
    const how = await new Promise<string>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code, signal) => resolve(signal ?? `exit code ${code}`));
    });
    if (!until.aborted) throw new Error(`conntrack ended: ${how}`);
  } finally {
    until.removeEventListener("abort", stop);
  }
}

/** What the slot's machine had open is forgotten, which ends its lines in the log. */
export async function forgetFlows(slot: Slot): Promise<void> {
  // The count of its open flows; there is none where it never opened one.
  const counted = ["delete", "element", "inet", "vivarium", "flows", `{ ${slot.machineAddress} }`];
  await run("nft", counted).catch(() => undefined);
  for (const side of ["--orig-src", "--orig-dst"]) {
    await run("conntrack", ["-D", side, slot.machineAddress]).catch(ignoreNone);
  }
}

function ignoreNone(error: Error): void {
  if (!/0 flow entries|ENOENT/.test(error.message)) throw error;
}
