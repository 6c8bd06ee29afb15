/** The banner that `viv up` prints once the service answers. */
import type { Health } from "@vivarium/sdk";

/** First words of the banner: `viv up --background` waits for them in the log. */
export const BANNER_START = "Vivarium serves";

export function renderBanner(facts: {
  url: string;
  keyFile: string;
  /** The bootstrap key, if this start has made it. */
  newKey?: string | undefined;
  /** File of the key-encryption key, if this start has made it. */
  newKek?: string | undefined;
  /** Where the logs are. */
  logs: string;
  health: Health;
  after: string;
}): string {
  const { url, keyFile, newKey, newKek, logs, health, after } = facts;
  const lines = [
    ...emulationWarning(health),
    `${BANNER_START} after ${after}`,
    `  URL        ${url}`,
    `  API key    ${newKey === undefined ? keyFile : `${newKey} (shown once; kept in ${keyFile})`}`,
    ...(newKek === undefined
      ? []
      : [`  Secrets    sealed with a new key in ${newKek}: without a copy of it, lost is lost`]),
    `  Isolation  ${health.isolation}`,
    `  Logs       ${logs}`,
  ];
  return lines.join("\n");
}

/** Emulation is announced at each start. */
function emulationWarning({ isolation, emulated_states: count }: Health): string[] {
  if (isolation === "kvm") return [];
  return [
    isolation === "mixed"
      ? `warning: ${count} saved states and machines here were made without KVM: they go on emulated, 10 to 100 times slower`
      : "warning: no working KVM: sessions still have machines of their own, but emulated ones, 10 to 100 times slower (see: viv doctor)",
  ];
}
