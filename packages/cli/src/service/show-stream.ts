import type { ExecEvent } from "@vivarium/sdk";
import { EXIT } from "../exit-codes.ts";
import type { Terminal } from "../terminal.ts";

/** How a program ended, as far as its exit code says. */
interface Ending {
  exit_code: number;
  timed_out: boolean;
  duration_ms: number;
}

/** Passes a program's output on as it comes and returns how it ended. */
export async function showStream(terminal: Terminal, events: AsyncIterable<ExecEvent>): Promise<Ending> {
  for await (const event of events) {
    if (event.type === "exit") return event.data;
    await terminal.write(event.type, event.data);
  }
  throw new Error("the stream of a program ended without its exit");
}

/** Both streams of a buffered answer; base64 where one is no UTF-8. */
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

/** The program's exit code becomes ours; a timeout has a code of its own and is reported. */
export function exitCodeOf(terminal: Terminal, ending: Ending): number {
  if (!ending.timed_out) return ending.exit_code;
  terminal.note(
    `viv: the program was stopped by its timeout after ${Math.round(ending.duration_ms / 100) / 10} s; allow more with --timeout`,
  );
  return EXIT.timeout;
}
