/** Compares two countings of a host (test/hosts/census), one before the service was installed and one after its removal. */

/** Longest list of differences of one kind that a failure shows. */
const SHOWN = 20;

/** Lines of things that appear and end on a host by themselves, or by the counting. Each says why it does not count. */
const NOT_COUNTED: { line: RegExp; because: string }[] = [
  {
    line: /^process (-?bash|sh|\/bin\/sh|\/bin\/bash|\/usr\/bin\/env bash|sshd\b.*|\/usr\/sbin\/sshd|\/usr\/lib\/openssh\/\S+)( |$)/,
    because: "the login that counts",
  },
  { line: /^process (find|sed|tr|cut|grep|sysctl|nft|systemctl|cat) /, because: "the counting itself" },
  {
    line: /^(process|unit|cgroup) .*(systemd-(tmpfiles|hostnamed|timedated|localed|userwork|fsck|udevd)|\(udev-worker\)|\(sd-pam\)|systemd --user|apt-daily|dpkg-db-backup|e2scrub|fstrim|logrotate|man-db|modprobe)/,
    because: "helpers that systemd and its timers start and end",
  },
  {
    line: /^unit (ldconfig|systemd-(journal-catalog-update|sysusers|update-done))\.service$/,
    because: "of the first boot of a system, and of no later one",
  },
  {
    line: /^unit (network-online\.target|systemd-networkd-wait-online\.service)$/,
    because: "reached by a unit that waits for the network, and kept until the next boot",
  },
  {
    line: /^(unit|cgroup) .*(user@|user-runtime-dir@|session-|user-\d|run-user-|sshd?@|system-sshd?)/,
    because: "logins",
  },
  { line: /^cgroup (user\.slice|init\.scope)(\/|$)/, because: "logins" },
  { line: /^mount \/run\/user\/\d+$/, because: "logins" },
  { line: /^unit (dev|sys)-.*\.device$/, because: "devices, of which loop devices are counted themselves" },
  {
    line: /^file \/run\/(user|systemd|udev|sshd|log|lock|credentials|utmp|mount|dbus|blkid|initctl|motd)/,
    because: "the state of systemd, udev and logins",
  },
  {
    line: /^(file|mount) \/run\/(netns|xtables\.lock)$/,
    because: "made by ip and iptables themselves, which keep them, empty, until the next boot",
  },
  { line: /^unit run-netns\.mount$/, because: "the same mount, as systemd sees it" },
  {
    line: /^file \/var\/lib\/(systemd|dpkg|apt|logrotate|man-db|private|dbus|ucf|pam)(\/|$)/,
    because: "the state of systemd and of packages, which stay",
  },
  {
    line: /^file \/etc\/((passwd|group|shadow|gshadow|subuid|subgid)-|ld\.so\.cache|\.pwd\.lock|\.updated) /,
    because: "what useradd, userdel and packages keep",
  },
];

/** The lines that count, each with how often it is there. */
function countsOf(text: string, when: string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const line of text.split("\n").map((one) => one.trimEnd()))
    if (line !== "" && !NOT_COUNTED.some((row) => row.line.test(line)))
      counts.set(line, (counts.get(line) ?? 0) + 1);
  for (const kind of ["process", "mount", "user", "setting", "file"])
    if (![...counts.keys()].some((line) => line.startsWith(`${kind} `)))
      throw new Error(`the counting ${when} has no ${kind}: it did not work`);
  return counts;
}

/** Each thing that is there after and was not before, and the reverse, as a line for a reader. */
export function differencesOf(before: string, after: string): string[] {
  const [first, second] = [countsOf(before, "before"), countsOf(after, "after")];
  const lines = [...new Set([...first.keys(), ...second.keys()])].toSorted();
  return lines.flatMap((line) => {
    const [was, is] = [first.get(line) ?? 0, second.get(line) ?? 0];
    if (was === is) return [];
    const times = Math.abs(is - was) > 1 ? ` (${Math.abs(is - was)} times)` : "";
    return [`${is > was ? "left" : "gone"}: ${line}${times}`];
  });
}

/** The differences as one text, with the first of each kind. */
export function describeDifferences(found: readonly string[]): string {
  const kinds = Map.groupBy(found, (line) => line.split(" ", 2).join(" "));
  const shown = [...kinds.values()].flatMap((lines) => [
    ...lines.slice(0, SHOWN),
    ...(lines.length > SHOWN ? [`… and ${lines.length - SHOWN} more of this kind`] : []),
  ]);
  return `${found.length} differences to the host before the install:\n${shown.join("\n")}`;
}
