import { VivariumError } from "@vivarium/sdk";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { explainError } from "../print/explain-error.ts";

/** Does one thing after the other, and says of each whether it is done; `key` names it in the JSON. */
export async function doEach(
  { config, terminal }: Context,
  { ids, key, json }: { ids: readonly string[]; key: string; json: boolean | undefined },
  act: (id: string) => Promise<unknown>,
): Promise<number> {
  const results: { ok: boolean; [fact: string]: unknown }[] = [];
  for (const id of ids) {
    try {
      await act(id);
      results.push({ [key]: id, ok: true });
      if (!json) terminal.out(id);
    } catch (error) {
      // One that is gone does not keep the others; a service that does not answer keeps them all.
      if (!(error instanceof VivariumError) || error.status === 0 || error.status === 401) {
        // What is done is done, and would not be told else.
        if (json && results.length > 0) terminal.out(JSON.stringify({ results }));
        throw error;
      }
      results.push({ [key]: id, ok: false, error: error.message, code: error.code });
      if (!json) terminal.note(explainError(error, config));
    }
  }
  if (json) terminal.out(JSON.stringify({ results }));
  return results.every((result) => result.ok) ? EXIT.ok : EXIT.failed;
}
