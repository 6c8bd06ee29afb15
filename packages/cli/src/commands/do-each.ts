import { VivariumError } from "@vivarium/sdk";
import { EXIT } from "../exit-codes.ts";
import { explainError } from "../print/explain-error.ts";
import { UnknownSession } from "../sessions/unknown-session.ts";
import type { Call } from "./verb.ts";

interface Each {
  ids: Iterable<string> | AsyncIterable<string>;
  /** Name of the id's field in the JSON results. */
  key: string;
}

/** Runs `act` for one id after the other and reports each result; returns the exit code. */
export async function doEach(
  { config, terminal, options: { json } }: Call,
  { ids, key }: Each,
  act: (id: string) => Promise<unknown>,
): Promise<number> {
  const results: { ok: boolean; [fact: string]: unknown }[] = [];
  try {
    for await (const id of ids) {
      try {
        await act(id);
        results.push({ [key]: id, ok: true });
        if (!json) terminal.out(id);
      } catch (error) {
        if (!isItemFailure(error)) throw error;
        results.push({ [key]: id, ok: false, error: error.message, code: error.code });
        if (!json) terminal.note(explainError(error, config));
      }
    }
  } catch (error) {
    // The results so far must be printed here: nothing is printed after the error.
    if (json && results.length > 0) terminal.out(JSON.stringify({ results }));
    throw error;
  }
  if (json) terminal.out(JSON.stringify({ results }));
  return results.every((result) => result.ok) ? EXIT.ok : EXIT.failed;
}

/** Whether the next ids are still tried: not when the service does not answer or refuses the key. */
function isItemFailure(error: unknown): error is VivariumError | UnknownSession {
  if (error instanceof UnknownSession) return true;
  return error instanceof VivariumError && error.status !== 0 && error.status !== 401;
}
