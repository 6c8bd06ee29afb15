import { once } from "node:events";
import { createInterface } from "node:readline";

/** Output of a verb: results to `out`, everything else for the human to `note`. */
export interface Terminal {
  /** Whether a human looks at standard output. */
  readonly isInteractive: boolean;
  /** Size of the screen now; it changes when the human resizes the window. */
  size(): { columns: number; rows: number };
  out(line: string): void;
  note(line: string): void;
  /** Whether a human can be asked something. */
  readonly canAsk: boolean;
  /** The human's answer; empty when there is no answer. */
  ask(question: string): Promise<string>;
  /** Raw bytes of a program's output; resolves when the reader takes more. */
  write(stream: "stdout" | "stderr", data: Uint8Array): Promise<void>;
}

export const processTerminal: Terminal = {
  isInteractive: process.stdout.isTTY === true,
  size: () => ({ columns: process.stdout.columns || 80, rows: process.stdout.rows || 24 }),
  out: (line) => void process.stdout.write(`${line}\n`),
  note: (line) => void process.stderr.write(`${line}\n`),
  canAsk: process.stdin.isTTY === true && process.stderr.isTTY === true,
  ask: async (question) => {
    process.stderr.write(question);
    for await (const line of createInterface({ input: process.stdin })) return line;
    process.stderr.write("\n");
    return "";
  },
  write: async (stream, data) => {
    if (!process[stream].write(data)) await once(process[stream], "drain");
  },
};
