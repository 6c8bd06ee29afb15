/** Connects a terminal of a session to the terminal of this process. */
import { setTimeout as wait } from "node:timers/promises";
import { type Session, type Terminal, type TerminalOptions, VivariumError } from "@vivarium/sdk";
import { withInterrupt } from "../service/interrupt.ts";
import { withoutAnswers } from "./answers.ts";
import { beforeDetach, type DetachKey } from "./detach-key.ts";
import { type OwnTerminal, takeTerminal } from "./own-terminal.ts";

export type Ending = { how: "exited"; code: number } | { how: "left" };

export interface Attachment extends Omit<TerminalOptions, "rows" | "cols" | "signal"> {
  detachKey: DetachKey;
}

/** Milliseconds for which a lost connection is retried. */
const RECONNECT_MS = 60_000;
const RECONNECT_EVERY_MS = 1000;
/** Milliseconds after opening a named terminal in which answers to old queries are dropped. */
const STALE_ANSWERS_MS = 1000;
const CLOSE_PATIENCE_MS = 2000;
/** Signal number: full-screen programs redraw when they get it. */
const SIGWINCH = 28;

/**
 * Runs until the program has exited or the human has left it. A named terminal is reattached when the connection is
 * lost. The human's terminal is restored before this resolves or rejects.
 */
export async function attach(
  session: Session,
  { detachKey, ...options }: Attachment,
  take: () => OwnTerminal = takeTerminal,
): Promise<Ending> {
  const size = { rows: process.stdout.rows || 24, cols: process.stdout.columns || 80 };
  // Until the terminal is open, Ctrl-C ends this program.
  let terminal = await withInterrupt((signal) => session.terminal({ ...options, ...size, signal }));
  const own = take();
  let openedAt = performance.now();
  const left = Promise.withResolvers<Ending>();
  const send = async (typed: Uint8Array) => {
    if (typed.byteLength > 0) await terminal.write(typed).catch(() => {});
  };
  own.onEnd(() => left.resolve({ how: "left" }));
  own.onResize(() => void terminal.resize(own.size().rows, own.size().columns).catch(() => {}));
  own.onInput(async (typed) => {
    const before = beforeDetach(detachKey, typed);
    const isStale = options.terminal !== undefined && performance.now() - openedAt < STALE_ANSWERS_MS;
    await send(isStale ? withoutAnswers(before ?? typed) : (before ?? typed));
    if (before !== undefined) left.resolve({ how: "left" });
  });
  let isCutOff = true;
  try {
    for (;;) {
      if (options.terminal !== undefined) await terminal.signal(SIGWINCH).catch(() => {});
      const ending = await Promise.race([left.promise, showAll(terminal, own)]);
      if (!(ending instanceof VivariumError)) {
        isCutOff = ending.how === "left";
        return ending;
      }
      if (options.terminal === undefined || !ending.retryable) throw ending;
      const again = await reopen({ session, own }, options, ending, left.promise);
      if ("how" in again) return again;
      terminal = again;
      openedAt = performance.now();
    }
  } finally {
    own.restore({ isCutOff });
    await Promise.race([terminal.close(), wait(CLOSE_PATIENCE_MS, undefined, { ref: false })]);
  }
}

async function showAll(terminal: Terminal, own: OwnTerminal): Promise<Ending | VivariumError> {
  try {
    for await (const chunk of terminal) await own.show(chunk);
    return { how: "exited", code: await terminal.exit };
  } catch (error) {
    if (error instanceof VivariumError) return error;
    throw error;
  }
}

/** Opens the terminal again, with retries; throws `lost` at the time limit. The human may leave meanwhile. */
async function reopen(
  { session, own }: { session: Session; own: OwnTerminal },
  options: TerminalOptions,
  lost: VivariumError,
  left: Promise<Ending>,
): Promise<Terminal | Ending> {
  own.say("viv: the connection was lost; trying to come back …");
  const deadline = performance.now() + RECONNECT_MS;
  while (performance.now() < deadline) {
    const ending = await Promise.race([left, wait(RECONNECT_EVERY_MS)]);
    if (ending !== undefined) return ending;
    const { rows, columns: cols } = own.size();
    try {
      const ms = deadline - performance.now();
      const terminal = await openWithin(session, { ...options, rows, cols }, { ms, left, lost });
      own.say("viv: back again");
      return terminal;
    } catch (error) {
      const isAway = error instanceof VivariumError && (error.status === 0 || error.retryable);
      if (!isAway) throw error;
    }
  }
  throw lost;
}

/** One attempt, ended early when the human leaves or the time is up. */
async function openWithin(
  session: Session,
  options: TerminalOptions,
  { ms, left, lost }: { ms: number; left: Promise<Ending>; lost: VivariumError },
): Promise<Terminal> {
  const attempt = new AbortController();
  let isOpen = false;
  const giveUp = () => {
    // The SDK obeys the signal for the whole life of the terminal, so it must not abort once that is open.
    if (!isOpen) attempt.abort(lost);
  };
  const timer = setTimeout(giveUp, ms);
  void left.then(giveUp);
  try {
    const terminal = await session.terminal({ ...options, signal: attempt.signal });
    isOpen = true;
    return terminal;
  } finally {
    clearTimeout(timer);
  }
}
