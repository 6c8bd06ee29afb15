/**
 * Starts previews, and retries until they start. A taken port, or a certificate that does not fit its key, keeps visitors
 * out and stops nothing else: egress is judged all the same.
 */
import { sleep } from "@vivarium/kit/clock";
import { type Previews, type PreviewsDependencies, startPreviews } from "./start.ts";

const RETRY_MS = 1_000;

/** Resolves after the first try. */
export async function keepPreviews(deps: PreviewsDependencies) {
  const closing = new AbortController();
  let previews = await tryStart(deps, true);
  const retries = (async () => {
    while (!previews && !closing.signal.aborted) {
      await sleep(RETRY_MS, closing.signal);
      if (!closing.signal.aborted) previews = await tryStart(deps, false);
    }
  })();
  return {
    // Without a listener there are no visitors to cut off.
    settled: async () => previews?.settled(),
    // Without a listener the pair is read at the next try.
    reloadCertificate: () => previews?.reloadCertificate(),
    async close() {
      closing.abort();
      await retries;
      await previews?.close();
    },
  };
}

async function tryStart(deps: PreviewsDependencies, isFirst: boolean): Promise<Previews | undefined> {
  const { config, log } = deps;
  try {
    const previews = await startPreviews(deps);
    log.info({ url: previews.url() }, "previews are served");
    return previews;
  } catch (error) {
    if (isFirst)
      log.error({ err: error, listen: config.listen }, "previews cannot start; tried again until they can");
    return undefined;
  }
}
