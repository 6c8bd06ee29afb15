/** Reads an endless stream of lines from the node, and opens it anew whenever it breaks. */
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import { readLines } from "./read-lines.ts";

/** A stream without a byte for this long counts as broken: the node sends a heartbeat every 5 s. */
const SILENCE_MS = 15_000;
const RECONNECT_MS = 200;
const MAX_LINE_BYTES = 64 * 1024 * 1024;

export interface LinesDeps {
  socketPath: string;
  path: string;
  /** Name of the lines in log messages: "tables". */
  name: string;
  log: Log;
  /** Called for each connection. `reopen` ends it: the node sends on the next one what it has. */
  begin: (reopen: (error: Error) => void) => LineReader;
}

export interface LineReader {
  /** Takes a line that is no heartbeat. The next one is read when the promise resolves. */
  take(line: string): Promise<void>;
  /** Resolves once all effects of the lines are complete. The stream is opened anew after that. */
  idle(): Promise<void>;
}

/** Reconnects until the signal aborts. */
export async function followLines(deps: LinesDeps, signal: AbortSignal): Promise<void> {
  let isKnownAway = false;
  while (!signal.aborted) {
    try {
      await followOnce(deps, signal, () => {
        isKnownAway = false;
      });
    } catch (error) {
      if (!signal.aborted && !isKnownAway)
        deps.log.warn({ err: error }, `the node does not send ${deps.name}`);
      isKnownAway = true;
    }
    await sleep(RECONNECT_MS, signal);
  }
}

async function followOnce(deps: LinesDeps, signal: AbortSignal, onConnected: () => void): Promise<void> {
  const stream = await openStream(deps, signal);
  onConnected();
  const reader = deps.begin((error) => stream.destroy(error));
  try {
    for await (const line of readLines(stream, MAX_LINE_BYTES))
      if (line.trim() !== "") await reader.take(line);
    throw new Error(`the node ended the stream of ${deps.name}`);
  } finally {
    stream.destroy();
    await reader.idle();
  }
}

async function openStream(
  { socketPath, path, name }: LinesDeps,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const call = request({ socketPath, path, signal, agent: false });
  call.setTimeout(SILENCE_MS, () =>
    call.destroy(new Error(`the node was silent for ${SILENCE_MS / 1000} s`)),
  );
  call.end();
  const [response] = (await once(call, "response")) as [IncomingMessage];
  if (response.statusCode === 200) return response;
  call.destroy();
  throw new Error(`the node answered ${response.statusCode} instead of ${name}`);
}
