/**
 * Standard input for a command in a session. A command's own input is empty, so it reads a pipe in the guest, and a
 * terminal without echo and line editing fills that pipe: every byte arrives as it is, the end arrives as the end, and
 * the command's two output streams stay apart.
 */
import { randomUUID } from "node:crypto";
import { addAbortSignal, type Readable } from "node:stream";
import type { ExecEvent, Session } from "@vivarium/sdk";

/** Payload of one message of input: the terminal's own limit. */
const PIECE_BYTES = 32 * 1024;
const READY = "viv-ready";
/**
 * Waits until the pipe is there, and runs the command with it as input. The name of the pipe is removed once both sides
 * have it open: removed here, because the feeder is ended with the command, however early that is. `$0` is what a shell
 * calls itself in errors.
 */
const READER = `pipe=$1; shift
mkfifo -m 600 "$pipe" 2>/dev/null
exec 3<"$pipe"
rm -f "$pipe"
exec "$@" <&3 3<&-`;
/**
 * Nothing may be sent before the terminal is in raw mode. Then come pieces, each after a line with its length, and a
 * length of 0 at the end.
 */
const WRITER = `stty raw -echo || exit
mkfifo -m 600 "$0" 2>/dev/null
exec 3>"$0"
printf ${READY}
while read -r bytes && [ "$bytes" -gt 0 ]; do
  dd bs="$bytes" count=1 iflag=fullblock status=none >&3 || exit
done`;

/** The command's output as it comes, and its end, while `input` goes to it. */
export async function* execWithInput(
  session: Session,
  request: { command: string[]; cwd?: string; timeout_ms: number },
  { input, signal }: { input: Readable; signal: AbortSignal },
): AsyncGenerator<ExecEvent, void, void> {
  const pipe = `/tmp/.viv-stdin-${randomUUID()}`;
  const over = new AbortController();
  const either = AbortSignal.any([signal, over.signal]);
  const feeding = feed(session, pipe, input, either).then(
    () => undefined,
    (cause: unknown) => {
      // A command that has ended by itself needs no input; a feeder that failed would leave it waiting.
      if (over.signal.aborted) return undefined;
      over.abort(cause);
      return { cause };
    },
  );
  const command = ["sh", "-c", READER, "viv exec", pipe, ...request.command];
  try {
    yield* session.execStream({ ...request, command }, { signal: either });
  } finally {
    over.abort(new Error("the command has ended"));
    await feeding;
  }
}

async function feed(session: Session, pipe: string, input: Readable, signal: AbortSignal): Promise<void> {
  // Also ends the feeder when the input never produces anything.
  addAbortSignal(signal, input);
  const terminal = await session.terminal({ cmd: ["sh", "-c", WRITER, pipe], signal });
  const ready = Promise.withResolvers<void>();
  const watching = watch(terminal, ready.resolve);
  await Promise.race([ready.promise, watching]);
  for await (const chunk of input) {
    for (let at = 0; at < chunk.byteLength; at += PIECE_BYTES) {
      const piece = chunk.subarray(at, at + PIECE_BYTES);
      await terminal.write(`${piece.byteLength}\n`);
      await terminal.write(piece);
    }
  }
  await terminal.write("0\n");
  await watching;
}

/** Until the feeder has exited. A command that stops reading ends the feeder too. */
async function watch(terminal: AsyncIterable<Uint8Array>, onReady: () => void): Promise<void> {
  let shown = "";
  for await (const chunk of terminal) {
    shown = (shown + Buffer.from(chunk).toString("latin1")).slice(-1000);
    if (shown.includes(READY)) onReady();
  }
}
