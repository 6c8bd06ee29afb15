/**
 * Terminals and the SSH tunnel: requests whose body and answer run at the same time.
 *
 *   POST /v1/terminals  → request: one opening frame with a TerminalSpec, then terminal frames of the client
 *                         answer 200, once the program runs: terminal frames of the guest. `exit` is last, after all data
 *   POST /v1/tunnel     → request: one opening frame with a TunnelSpec, then raw SSH bytes; answer 200: raw SSH bytes
 *
 * All frames are 1 byte type, 4 bytes payload length (big-endian), payload. The types are those of
 * docs/spec/terminals.md, and 0x00 for the opening. When the request ends or breaks off, an unnamed terminal is hung
 * up: SIGHUP to its session, SIGKILL to its cgroup after 5 s. A named one stays and keeps its last 256 KiB of output,
 * which a client that attaches again gets first. Several clients share a named terminal; the last requested size
 * applies. A copy of the machine with an identity of its own begins without terminals.
 */
import { z } from "zod";
import { PROCESS_NAME_PATTERN } from "../api/processes.ts";
import { PTY_FRAME } from "../api/terminals.ts";
import type { Framed } from "./framing.ts";
import { ExecSpec } from "./messages.ts";

/** These functions accept frames of any type; readers ignore types that they do not know. */
export { encodeFramed as encodeTerminalFrame, FramedDecoder as TerminalFrameDecoder } from "./framing.ts";
export type TerminalFrame = Pick<Framed, "type" | "payload">;

export const TERMINAL_FRAME = { open: 0x00, ...PTY_FRAME } as const;

export const TerminalSpec = z.object({
  /** Absent: the user's login shell. */
  argv: ExecSpec.shape.argv.optional(),
  cwd: z.string().optional(),
  /** The environment, as in ExecSpec, with TERM and COLORTERM. */
  env: ExecSpec.shape.env,
  rows: z.int().min(1).max(65_535),
  cols: z.int().min(1).max(65_535),
  /** Name of the terminal to attach to, which is created if it does not exist. Absent: an unnamed new one. */
  name: z.string().regex(PROCESS_NAME_PATTERN).optional(),
});
export type TerminalSpec = z.infer<typeof TerminalSpec>;

/** `env`: environment of every shell and command that the SSH tunnel starts. */
export const TunnelSpec = ExecSpec.pick({ env: true });
export type TunnelSpec = z.infer<typeof TunnelSpec>;
