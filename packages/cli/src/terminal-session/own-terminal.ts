/** The terminal of the human: passes keys on as they come, and is always restored. */
import { once } from "node:events";
import { ScreenModes } from "./screen-modes.ts";

/** After these signals nobody sees a message; the exit code is the one a shell would report. */
const ENDING_SIGNALS = { SIGTERM: 15, SIGHUP: 1, SIGINT: 2, SIGQUIT: 3 } as const;
const SIGNALLED = 128;

export interface OwnTerminal {
  size(): { rows: number; columns: number };
  onResize(listener: () => void): void;
  /** Keys, only as fast as the listener takes them. */
  onInput(listener: (typed: Buffer) => Promise<void>): void;
  /** Called when the terminal itself has gone. */
  onEnd(listener: () => void): void;
  show(chunk: Uint8Array): Promise<void>;
  /** Prints a line between two programs, on a screen without the first program's modes. */
  say(line: string): void;
  /** Restores the terminal; a second call does nothing. A program that was cut off left the cursor within a line. */
  restore(how?: { isCutOff: boolean }): void;
}

/** Takes the terminal over. It is restored by `restore`, and at the latest when the process ends. */
export function takeTerminal({
  stdin,
  stdout,
}: Pick<NodeJS.Process, "stdin" | "stdout"> = process): OwnTerminal {
  let modes = new ScreenModes();
  const cleanups: (() => void)[] = [];
  const listen = (emitter: NodeJS.EventEmitter, event: string, listener: (...args: never[]) => void) => {
    emitter.on(event, listener as (...args: unknown[]) => void);
    cleanups.push(() => emitter.off(event, listener as (...args: unknown[]) => void));
  };
  let isTaken = true;
  const restore = ({ isCutOff } = { isCutOff: true }) => {
    if (!isTaken) return;
    isTaken = false;
    for (const cleanup of cleanups) cleanup();
    stdin.pause();
    // A terminal that has gone cannot be restored.
    try {
      const isWithinLine = isCutOff && !modes.isFullScreen;
      stdout.write(`${modes.undo()}${isWithinLine ? "\r\n" : ""}`);
      stdin.setRawMode(false);
    } catch {}
  };
  listen(process, "exit", () => restore());
  for (const [signal, number] of Object.entries(ENDING_SIGNALS)) {
    listen(process, signal, () => process.exit(SIGNALLED + number));
  }
  stdin.setRawMode(true);
  return {
    size: () => ({ rows: stdout.rows || 24, columns: stdout.columns || 80 }),
    onResize: (listener) => listen(stdout, "resize", listener),
    onInput: (listener) =>
      listen(stdin, "data", (typed: Buffer) => {
        stdin.pause();
        void listener(typed).then(() => isTaken && stdin.resume());
      }),
    onEnd: (listener) => listen(stdin, "end", listener),
    show: async (chunk) => {
      if (!isTaken) return;
      modes.watch(chunk);
      if (!stdout.write(chunk)) await Promise.race([once(stdout, "drain"), once(stdout, "close")]);
    },
    say: (line) => {
      if (!isTaken) return;
      stdout.write(`${modes.undo()}\r\n${line}\r\n`);
      modes = new ScreenModes();
    },
    restore,
  };
}
