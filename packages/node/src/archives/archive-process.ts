/**
 * Runs the program that packs or unpacks one saved state, and hands on what it asks and what it is answered. It gives way
 * to machines, and a guest that waits for a page of memory is not behind its compression. It dies with this process.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Duplex, Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { encodeOpening } from "@vivarium/contract/node";
import type { Order, Outcome } from "./order.ts";

const PROGRAM = fileURLToPath(new URL("./archive-program.ts", import.meta.url));
/** Content of files is not counted, and is bounded by the windows at work. */
const HEAP_MIB = 256;
const SHOWN_CHARACTERS = 2_000;

interface Relay {
  asks: Writable;
  answers: Readable;
  niceness: number;
  /** Kills the process once it is aborted. */
  signal: AbortSignal;
}

/** Returns once the process has ended. Its asks are written by then, and nothing follows them. */
export async function runArchiveProcess(order: Order, relay: Relay): Promise<Outcome> {
  const { asks, answers, niceness, signal } = relay;
  signal.throwIfAborted();
  const node = [process.execPath, `--max-old-space-size=${HEAP_MIB}`, PROGRAM];
  const args = ["--pdeathsig", "KILL", "nice", "-n", String(niceness), ...node];
  const child = spawn("setpriv", args, { stdio: ["ignore", "pipe", "pipe", "pipe"] });
  const channel = child.stdio[3] as Duplex;
  // Its end says more than the failure of a pipe does.
  for (const stream of [channel, answers]) stream.on("error", () => {});
  const kill = () => {
    child.kill("SIGKILL");
    // Its last asks are not wanted, and nobody may take them.
    channel.destroy();
  };
  signal.addEventListener("abort", kill);
  try {
    const ended = once(child, "close");
    const said = Promise.all([text(child.stdout as Readable), text(child.stderr as Readable)]);
    // A process that was not started has said nothing, and that is reported by its end.
    said.catch(() => {});
    channel.write(encodeOpening(order));
    answers.pipe(channel);
    channel.pipe(asks, { end: false });
    const [code, killedBy] = (await ended) as [number | null, string | null];
    signal.throwIfAborted();
    const [outcome, errors] = await said;
    if (code === 0) return JSON.parse(outcome) as Outcome;
    throw new Error(
      `the process that ${order.action}s a saved state ended with ${killedBy ?? code}: ${errors.slice(0, SHOWN_CHARACTERS)}`,
    );
  } finally {
    signal.removeEventListener("abort", kill);
    answers.unpipe(channel);
  }
}
