/**
 * Kernel settings that nodes change on their host, and the records of it. A record is an empty chain in the host's nft
 * table, named after the setting, its value before and the new one: it outlives every process, and is of the network whose
 * setting it is. The last service to stop and an uninstall put the settings back.
 */
const SETTINGS = {
  forwarding: "/proc/sys/net/ipv4/ip_forward",
  conntrack_max: "/proc/sys/net/netfilter/nf_conntrack_max",
  conntrack_acct: "/proc/sys/net/netfilter/nf_conntrack_acct",
} as const;
export type HostSetting = keyof typeof SETTINGS;

export const fileOfHostSetting = (setting: HostSetting): string => SETTINGS[setting];

/** The record of forwarding has the name that earlier versions gave it. */
const FORWARDING_WAS_OFF = "forwarding_was_off";
const RECORD = /^(conntrack_max|conntrack_acct)_was_(\d+)_now_(\d+)$/;

export interface HostSettingChange {
  setting: HostSetting;
  was: string;
  now: string;
}

/** Name of the chain that records the change. */
export function recordOfChange({ setting, was, now }: HostSettingChange): string {
  return setting === "forwarding" ? FORWARDING_WAS_OFF : `${setting}_was_${was}_now_${now}`;
}

/** The changes that a listing of the table (`nft list table`) records, in their order. */
export function changesIn(listing: string): HostSettingChange[] {
  const chains = [...listing.matchAll(/^\s*chain (\w+) \{/gm)].map(([, name = ""]) => name);
  return chains.flatMap((name): HostSettingChange[] => {
    if (name === FORWARDING_WAS_OFF) return [{ setting: "forwarding", was: "0", now: "1" }];
    const [, setting, was = "", now = ""] = RECORD.exec(name) ?? [];
    return setting === undefined ? [] : [{ setting: setting as HostSetting, was, now }];
  });
}

/**
 * The values to put back. A setting that has none of the values that nodes gave it was set by somebody else since, and
 * stays. `current` reads a setting as it is.
 */
export function valuesToPutBack(
  changes: readonly HostSettingChange[],
  current: (setting: HostSetting) => string | undefined,
): { setting: HostSetting; value: string }[] {
  return [...new Set(changes.map(({ setting }) => setting))].flatMap((setting) => {
    const ofIt = changes.filter((change) => change.setting === setting);
    const given = new Set(ofIt.map(({ now }) => now));
    // A second node raises the value that the first one has given.
    const before = ofIt.findLast(({ was }) => !given.has(was));
    return before && given.has(current(setting) ?? "") ? [{ setting, value: before.was }] : [];
  });
}
