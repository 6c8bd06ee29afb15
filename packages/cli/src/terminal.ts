import { once } from "node:events";
import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import { Interrupted } from "./service/interrupt.ts";

/** The terminal of a verb: results go to `out`, messages for the human to `note`. */
export interface Terminal {
  /** Whether standard output is a terminal. */
  readonly isInteractive: boolean;
  /** Current size of the screen; it changes when the human resizes the window. */
  size(): { columns: number; rows: number };
  out(line: string): void;
  note(line: string): void;
  /** Whether `ask` can reach a human. */
  readonly canAsk: boolean;
  /** Asks a question; resolves to the answer, empty without one. */
  ask(question: string): Promise<string>;
  /** Asks for a secret: as `ask`, but the answer is not shown. */
  askHidden(question: string): Promise<string>;
  /** Writes raw bytes of a program's output; resolves when the reader can take more. */
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
  askHidden: (question) =>
    new Promise((resolve, reject) => {
      const output = new Writable({ write: (_chunk, _encoding, done) => done() });
      // In this order: the terminal would show keys that are pressed before the interface has switched its echo off.
      const lines = createInterface({ input: process.stdin, output, terminal: true, historySize: 0 });
      process.stderr.write(question);
      lines.once("line", (line) => {
        resolve(line);
        lines.close();
      });
      // Without the terminal's signals, Ctrl-C is a key like any other.
      lines.once("SIGINT", () => {
        reject(new Interrupted("SIGINT"));
        lines.close();
      });
      lines.once("close", () => {
        process.stderr.write("\n");
        resolve("");
      });
    }),
  write: async (stream, data) => {
    if (!process[stream].write(data)) await once(process[stream], "drain");
  },
};
