import type { ExecEvent } from "@vivarium/sdk";
import { EXIT } from "../exit-codes.ts";
import type { Terminal } from "../terminal.ts";

/** How a program ended. */
interface Ending {
  exit_code: number;
  timed_out: boolean;
  duration_ms: number;
}

/** Passes a program's output to the terminal as it arrives, and returns how the program ended. */
export async function showStream(terminal: Terminal, events: AsyncIterable<ExecEvent>): Promise<Ending> {
  for await (const event of events) {
    if (event.type === "exit") return event.data;
    await terminal.write(event.type, event.data);
  }
  throw new Error("the stream of a program ended without its exit");
}

/** Output of a buffered answer; a stream that is not UTF-8 is in base64. */
interface BothStreams {
  stdout: string;
  stderr: string;
  stdout_encoding?: "base64";
  stderr_encoding?: "base64";
}

export async function writeBothStreams(terminal: Terminal, streams: BothStreams): Promise<void> {
  await terminal.write("stdout", Buffer.from(streams.stdout, streams.stdout_encoding ?? "utf8"));
  await terminal.write("stderr", Buffer.from(streams.stderr, streams.stderr_encoding ?? "utf8"));
}

/** The program's exit code, or 124 after a timeout, which is reported as well. */
export function exitCodeOf(terminal: Terminal, ending: Ending): number {
  if (!ending.timed_out) return ending.exit_code;
  terminal.note(
    `viv: the program was stopped by its timeout after ${Math.round(ending.duration_ms / 100) / 10} s; allow more with --timeout`,
  );
  return EXIT.timeout;
}
