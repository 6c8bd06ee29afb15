/** The banner that `viv up` prints once the service answers. */
import type { Health } from "@vivarium/sdk";

/** First words of the banner: `viv up --background` waits for them in the log. */
export const BANNER_START = "Vivarium serves";

export function renderBanner(facts: {
  url: string;
  keyFile: string;
  /** The bootstrap key, if this start has made it. */
  newKey?: string | undefined;
  logDir: string;
  health: Health;
  after: string;
}): string {
  const { url, keyFile, newKey, logDir, health, after } = facts;
  const lines = [
    ...(health.isolation === "emulated"
      ? [
          "warning: no working KVM: sessions still have machines of their own, but emulated ones, 10 to 100 times slower (see: viv doctor)",
        ]
      : []),
    `${BANNER_START} after ${after}`,
    `  URL        ${url}`,
    `  API key    ${newKey === undefined ? keyFile : `${newKey} (shown once; kept in ${keyFile})`}`,
    `  Isolation  ${health.isolation}`,
    `  Logs       ${logDir}`,
  ];
  return lines.join("\n");
}
