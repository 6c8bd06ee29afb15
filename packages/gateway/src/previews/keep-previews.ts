/** Starts previews, and retries until they start. A taken port or a bad certificate must not stop the gateway. */
import { sleep } from "@vivarium/kit/clock";
import { type Previews, type PreviewsDependencies, startPreviews } from "./start.ts";

const RETRY_MS = 1_000;

/** Resolves after the first attempt. */
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
    // Before previews have started there are no visitors to cut off.
    settled: async () => previews?.settled(),
    // Before previews have started the next attempt reads the pair.
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
