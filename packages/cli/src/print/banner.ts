import type { Health } from "@vivarium/sdk";

/** First words of the banner: a waiting `viv` stops waiting at this line. */
export const BANNER_START = "Vivarium serves";

/** Facts for a human who has just started the service. */
export function renderBanner(facts: {
  url: string;
  keyFile: string;
  /** The key itself, at the first start. */
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
