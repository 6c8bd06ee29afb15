/** Runs `work` with a signal that Ctrl-C aborts, as does SIGTERM; a second Ctrl-C ends the process at once, as usual. */
export async function withInterrupt<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const abort = new AbortController();
  const onSignal = (signal: EndingSignal) => abort.abort(new Interrupted(signal));
  const onPipeError = (error: Error) => abort.abort(error);
  process.once("SIGINT", onSignal);
  process.once("SIGTERM", onSignal);
  // The reader of our output has gone (`| head`): nobody wants the rest.
  process.stdout.on("error", onPipeError);
  try {
    return await work(abort.signal);
  } finally {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
    process.stdout.off("error", onPipeError);
  }
}

type EndingSignal = "SIGINT" | "SIGTERM";

/** Why work was ended by the human, or whoever started it, and not by a failure. */
export class Interrupted extends Error {
  override readonly name = "Interrupted";
  readonly signal: EndingSignal;

  constructor(signal: EndingSignal) {
    super();
    this.signal = signal;
  }
}
