/**
 * Terminals and the SSH tunnel: requests whose body and answer run at the same time.
 *
 *   POST /v1/terminals  → request: one opening frame with a TerminalSpec, then terminal frames of the client
 *                         answer 200, once the program runs: terminal frames of the guest. `exit` is last, after all data
 *   POST /v1/tunnel     → request: one opening frame with a TunnelSpec, then raw SSH bytes; answer 200: raw SSH bytes
 *
 * All frames are 1 byte type, 4 bytes payload length (big-endian), payload. The types are those of
 * docs/spec/terminals.md, and 0x00 opens. When the request ends or breaks off, an unnamed terminal is hung up: SIGHUP to its
 * session, SIGKILL to its cgroup after 5 s. A named one stays, keeps its last output (TERMINAL_BACKLOG_BYTES) and reads no
 * more than that. A client that attaches again gets the backlog first. Several clients share a named terminal; the last
 * requested size applies. A copy of the machine with an identity of its own begins without terminals.
 */
export const TERMINAL_FRAME = {
  open: 0x00,
  data: 0x01,
  resize: 0x02,
  signal: 0x03,
  exit: 0x05,
  error: 0x06,
} as const;

export const TERMINAL_BACKLOG_BYTES = 256 * 1024;

export interface TerminalSpec {
  /** Absent: the user's login shell. */
  argv?: string[];
  cwd?: string;
  /** As in ExecSpec, with TERM and COLORTERM. */
  env: Record<string, string>;
  rows: number;
  cols: number;
  /** Attach to the terminal of this name. It is created if there is none. */
  name?: string;
}

export interface TunnelSpec {
  /** For every shell and command that is started through it. */
  env: Record<string, string>;
}
