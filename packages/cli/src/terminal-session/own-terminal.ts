/** The terminal of this process: put into raw mode for a session, and always restored. */
import { once } from "node:events";
import { ScreenModes } from "./screen-modes.ts";

/** Signals that end viv, with their numbers: it exits with 128 + number, as a shell reports, and without a message. */
const ENDING_SIGNALS = { SIGTERM: 15, SIGHUP: 1, SIGINT: 2, SIGQUIT: 3 } as const;
const SIGNALLED = 128;

export interface OwnTerminal {
  size(): { rows: number; columns: number };
  onResize(listener: () => void): void;
  /** Calls the listener with typed bytes; the next are read when it has resolved. */
  onInput(listener: (typed: Buffer) => Promise<void>): void;
  /** Calls the listener when the terminal has been closed. */
  onEnd(listener: () => void): void;
  show(chunk: Uint8Array): Promise<void>;
  /** Resets the screen modes that the program has set, then prints a line. */
  say(line: string): void;
  /** Restores the terminal; a second call does nothing. After a program that was cut off it also begins a new line. */
  restore(how?: { isCutOff: boolean }): void;
}

/** Switches the terminal to raw mode. `restore` undoes that, at the latest when the process exits. */
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
    // A terminal that was closed cannot be restored.
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
