/** Terminal frames, and the options of a terminal (docs/spec/terminals.md). */
import { z } from "zod";
import { Command, ExecRequest } from "./exec.ts";
import { ProcessName } from "./processes.ts";

/** WebSocket binary messages: 1 byte type, then the payload. */
export const PTY_FRAME = { data: 0x01, resize: 0x02, signal: 0x03, exit: 0x05, error: 0x06 } as const;

const LINES = "must be a whole number from 1 to 1000";
const lines = z
  .string(LINES)
  .regex(/^[0-9]{1,4}$/, LINES)
  .transform(Number)
  .refine((value) => value >= 1 && value <= 1000, LINES);
const terminalWord = z.string().regex(/^[A-Za-z0-9._+-]{1,64}$/, "must be 1 to 64 of A-Z a-z 0-9 . _ + -");

/** Query of `GET …/pty`. */
export const PtyQuery = z.object({
  rows: lines.default(24),
  cols: lines.default(80),
  term: terminalWord.default("xterm-256color"),
  colorterm: terminalWord.optional(),
  /** The argv of the program, one parameter per element; absent: the user's login shell. */
  cmd: Command.optional(),
  cwd: ExecRequest.shape.cwd,
  /**
   * A named terminal stays when its clients leave, and others can attach to it by this name. The first client creates
   * it. `rows` and `cols` are those of the latest client; the other options count only for the client that creates it.
   */
  terminal: ProcessName.optional(),
});
export type PtyQuery = z.output<typeof PtyQuery>;

/** Closing codes of both WebSocket endpoints (docs/spec/terminals.md). */
export const WS_CLOSE = {
  normal: 1000,
  goingAway: 1001,
  unsupportedData: 1003,
  policyViolation: 1008,
  tooBig: 1009,
  internal: 1011,
} as const;
