/**
 * Passes standard input to a command in a session. The API gives a command no input, so it reads a named pipe in the
 * guest. A terminal in raw mode fills that pipe: bytes and the end of input arrive unchanged, and the command's two
 * output streams stay separate.
 */
import { randomUUID } from "node:crypto";
import { addAbortSignal, type Readable } from "node:stream";
import type { ExecEvent, Session } from "@vivarium/sdk";

/** Bytes per message of input, the limit of terminals. */
const PIECE_BYTES = 32 * 1024;
const READY = "viv-ready";
/**
 * Script that waits for the pipe's writer and runs the command with the pipe as input. It removes the pipe's name
 * itself, since the writer is ended with the command, however early. `$0` is the name in the shell's error messages.
 */
const READER = `pipe=$1; shift
mkfifo -m 600 "$pipe" 2>/dev/null
exec 3<"$pipe"
rm -f "$pipe"
exec "$@" <&3 3<&-`;
/**
 * Script that fills the pipe: it prints READY once the terminal is raw, then reads pieces, each after a line with its
 * length, until length 0.
 */
const WRITER = `stty raw -echo || exit
mkfifo -m 600 "$0" 2>/dev/null
exec 3>"$0"
printf ${READY}
while read -r bytes && [ "$bytes" -gt 0 ]; do
  dd bs="$bytes" count=1 iflag=fullblock status=none >&3 || exit
done`;

/** Runs a command with `input` as its standard input; yields its output as it arrives, and its end. */
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
      // A failed writer would leave the command waiting; after the command's own end, the failure does not matter.
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
  // Ends the reading even when the input never produces anything.
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

/** Reads the writer's terminal until the writer has exited, also because the command stopped reading. */
async function watch(terminal: AsyncIterable<Uint8Array>, onReady: () => void): Promise<void> {
  let shown = "";
  for await (const chunk of terminal) {
    shown = (shown + Buffer.from(chunk).toString("latin1")).slice(-1000);
    if (shown.includes(READY)) onReady();
  }
}
