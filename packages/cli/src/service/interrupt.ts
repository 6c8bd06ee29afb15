/** Runs `work` with a signal that Ctrl-C or SIGTERM aborts; a second Ctrl-C ends the process at once. */
export async function withInterrupt<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const abort = new AbortController();
  const onInterrupt = () => abort.abort(new Interrupted("SIGINT"));
  const onTerminate = () => abort.abort(new Interrupted("SIGTERM"));
  const onPipeError = (error: Error) => abort.abort(error);
  process.once("SIGINT", onInterrupt);
  process.once("SIGTERM", onTerminate);
  // The reader of the output has gone (`| head`), so nobody needs the rest.
  process.stdout.on("error", onPipeError);
  try {
    return await work(abort.signal);
  } finally {
    process.off("SIGINT", onInterrupt);
    process.off("SIGTERM", onTerminate);
    process.stdout.off("error", onPipeError);
  }
}

type EndingSignal = "SIGINT" | "SIGTERM";

/** The abort reason of interrupted work: Ctrl-C or SIGTERM ended it, and nothing failed. */
export class Interrupted extends Error {
  override readonly name = "Interrupted";
  readonly signal: EndingSignal;

  constructor(signal: EndingSignal) {
    super();
    this.signal = signal;
  }
}

/** Runs `work` that never ends by itself: Ctrl-C ends it without an error. */
export async function untilCtrlC(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  try {
    await withInterrupt(async (signal) => {
      await work(signal);
      signal.throwIfAborted();
    });
  } catch (error) {
    if (!(error instanceof Interrupted && error.signal === "SIGINT")) throw error;
  }
}
