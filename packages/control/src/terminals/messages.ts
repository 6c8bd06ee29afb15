/** Translates between WebSocket messages of a terminal and frames of the agent (docs/spec/terminals.md). */
import { LIMITS, PTY_FRAME, WS_CLOSE } from "@vivarium/contract/api";
import {
  encodeTerminalFrame,
  GUEST_LIMITS,
  TERMINAL_FRAME,
  TerminalFrameDecoder,
} from "@vivarium/contract/guest";

/** Translates the messages and bytes of one connection, of a terminal or of a tunnel. */
export interface Protocol {
  /** Bytes for the machine, from one message. */
  toGuest(message: Buffer): Buffer[];
  /** Messages for the client, from one chunk of the stream. With the close code if this chunk is the last. */
  toClient(chunk: Buffer): { messages: Buffer[]; closeCode?: number };
  /** The last message to the client when the stream broke off. */
  failure(text: string): Buffer | undefined;
  /** Whether the stream may end without a last frame. */
  readonly endsSilently: boolean;
  /** Set once the program has ended. */
  readonly exitCode?: number;
}

const MAX_SIGNAL = 31;

function isSize(payload: Buffer): boolean {
  return payload.length === 4 && payload.readUInt16BE(0) > 0 && payload.readUInt16BE(2) > 0;
}

function isSignal(payload: Buffer): boolean {
  const number = payload[0] ?? 0;
  return payload.length === 1 && number >= 1 && number <= MAX_SIGNAL;
}

export class TerminalProtocol implements Protocol {
  readonly endsSilently = false;
  readonly #frames = new TerminalFrameDecoder();
  exitCode: number | undefined;

  /** Empty, unknown and malformed messages are ignored. */
  toGuest(message: Buffer): Buffer[] {
    const type = message[0];
    const payload = message.subarray(1);
    if (type === PTY_FRAME.data)
      return pieces(payload, GUEST_LIMITS.framePayloadBytes).map((piece) =>
        encodeTerminalFrame(TERMINAL_FRAME.data, piece),
      );
    if (type === PTY_FRAME.resize && isSize(payload))
      return [encodeTerminalFrame(TERMINAL_FRAME.resize, payload)];
    if (type === PTY_FRAME.signal && isSignal(payload))
      return [encodeTerminalFrame(TERMINAL_FRAME.signal, payload)];
    return [];
  }

  toClient(chunk: Buffer): { messages: Buffer[]; closeCode?: number } {
    const messages: Buffer[] = [];
    for (const { type, payload } of this.#frames.push(chunk)) {
      if (type === TERMINAL_FRAME.data) {
        // The type byte counts towards the limit.
        for (const piece of pieces(payload, LIMITS.terminalDataBytes - 1))
          messages.push(messageOf(PTY_FRAME.data, piece));
      } else if (type === TERMINAL_FRAME.exit) {
        this.exitCode = exitCodeOf(payload);
        return { messages: [...messages, messageOf(PTY_FRAME.exit, payload)], closeCode: WS_CLOSE.normal };
      } else if (type === TERMINAL_FRAME.error) {
        return { messages: [...messages, messageOf(PTY_FRAME.error, payload)], closeCode: WS_CLOSE.internal };
      }
    }
    return { messages };
  }

  failure(text: string): Buffer {
    return messageOf(PTY_FRAME.error, Buffer.from(text));
  }
}

/** A tunnel carries raw bytes, in messages of any size. */
export const TUNNEL_PROTOCOL: Protocol = {
  endsSilently: true,
  toGuest: (message) => (message.length > 0 ? [message] : []),
  toClient: (chunk) => ({ messages: pieces(chunk, LIMITS.terminalDataBytes) }),
  failure: () => undefined,
};

function messageOf(type: number, payload: Buffer): Buffer {
  return Buffer.concat([Buffer.of(type), payload]);
}

function exitCodeOf(payload: Buffer): number {
  if (payload.length !== 4) throw new Error(`an exit frame of ${payload.length} bytes`);
  return payload.readInt32BE(0);
}

function pieces(bytes: Buffer, maxBytes: number): Buffer[] {
  const cut: Buffer[] = [];
  for (let start = 0; start < bytes.length; start += maxBytes)
    cut.push(bytes.subarray(start, start + maxBytes));
  return cut;
}
