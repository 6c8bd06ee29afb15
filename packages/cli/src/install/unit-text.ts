/**
 * Texts of the systemd units: the service, and the unit that holds the machines' cgroups. Pure.
 *
 * The service gets no option for which systemd makes a mount namespace (ProtectSystem, PrivateTmp,
 * ProtectKernelTunables and others). The node mounts network namespaces and the pool for machines that outlive it. In a
 * namespace of the unit these mounts would end with the unit, and the next start would not find its machines.
 */
import { MACHINES_UNIT, MACHINES_UNIT_PROPERTIES } from "@vivarium/contract/node";
import { PAUSE_AND_CLOSE_LIMIT_MS } from "../supervisor/host-shutdown.ts";

export interface UnitFacts {
  /** Name of the unit, without `.service`. */
  name: string;
  /** The copy of the checkout whose programs run. */
  copy: string;
  dataDir: string;
  settingsFile: string;
  /** Exists while an update of this unit is not finished. */
  journalFile: string;
  /** Other places that the service uses, which may be on file systems of their own. */
  otherPlaces?: readonly string[];
  /** Version of the host's systemd. */
  systemd: number;
}

/** First words of our unit files; systemd ignores sections whose name begins with `X-`. */
const MARK = "# Written by `viv install`, which replaces it. Change it with: systemctl edit";
const SECTION = "X-Vivarium";

/** Time for the processes other than control, which end one after the other. */
const OTHERS_STOP_MS = 120_000;
const STOP_LIMIT_MS = PAUSE_AND_CLOSE_LIMIT_MS + OTHERS_STOP_MS;

/** Since which version systemd waits longer after each failure. */
const HAS_BACK_OFF = 254;

/** The rights of root that the node uses; control, gateway and database have none. */
const CAPABILITIES = [
  // Files of other users, and devices, in the jails of machines.
  ...["CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "MKNOD"],
  // Dropping to users without rights, and ending their processes.
  ...["SETUID", "SETGID", "SETPCAP", "KILL"],
  // Namespaces, mounts, and the limits of its processes.
  ...["SYS_ADMIN", "SYS_CHROOT", "SYS_RESOURCE", "SYS_PTRACE", "SYS_NICE"],
  // Networks of machines, and addresses to listen at.
  ...["NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"],
];

/** RestrictSUIDSGID is not among them: it takes openat2 away, with which bubblewrap opens what it binds. */
const HARDENING = [
  "NoNewPrivileges=yes",
  `CapabilityBoundingSet=${CAPABILITIES.map((name) => `CAP_${name}`).join(" ")}`,
  "RestrictNamespaces=ipc mnt net pid uts",
  "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
  "SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap",
  "SystemCallErrorNumber=EPERM",
  "SystemCallArchitectures=native",
  "RestrictRealtime=yes",
  "LockPersonality=yes",
  "KeyringMode=private",
  "UMask=0022",
];

export function serviceUnit(facts: UnitFacts): string {
  const { name, copy, dataDir, settingsFile, journalFile, otherPlaces = [], systemd } = facts;
  // The pool too, wherever it is mounted from: its mount then outlives the stop of the service.
  const places = new Set([copy, dataDir, `${dataDir}/pool`, ...otherPlaces]);
  const viv = [`${copy}/node_modules/.bin/node`, `${copy}/packages/cli/src/main.ts`];
  const backOff = systemd >= HAS_BACK_OFF ? ["RestartSteps=6", "RestartMaxDelaySec=60"] : [];
  return `${MARK} ${name}
[Unit]
Description=Vivarium, which runs each session in a virtual machine of its own
Documentation=${escapePercent(new URL("docs/operate/install.md", `file://${copy}/`).href)}
Wants=network-online.target ${MACHINES_UNIT}
# What starts later stops earlier: when the host goes down, sessions are paused while their machines still run.
After=network-online.target nss-user-lookup.target time-sync.target postgresql.service ${MACHINES_UNIT}
RequiresMountsFor=${[...places].map(quote).join(" ")}
StartLimitIntervalSec=0

[Service]
Type=exec
EnvironmentFile=-${escapePercent(settingsFile)}
# A disk that no unit of systemd mounts may not be there: the directory below it is not filled. Tried until it is.
ExecStartPre=+${command([`${copy}/scripts/require-data`, "--keep", dataDir])}
# An update that was interrupted is continued beside this start, and may replace this unit.
ExecStartPre=+-${command([`${copy}/scripts/continue-update`, journalFile, name])}
# After an update of the host's QEMU or a change of its CPU: the baseline is baked again, with all rights and without a network.
ExecStartPre=+-${command([`${copy}/scripts/setup/when-needed`, dataDir, "--baseline-only"])}
ExecStart=${command([...viv, "up", "--data-dir", dataDir, "--log", "stdout"])}
ExecStartPost=${command([...viv, "ready", "--data-dir", dataDir])}
TimeoutStartSec=1h
Restart=on-failure
RestartSec=2
${backOff.map((line) => `${line}\n`).join("")}# Wrong options, or another service has the data directory: a restart would not help.
RestartPreventExitStatus=2 75
# The supervisor alone is asked to stop, and stops the others in order.
KillMode=mixed
TimeoutStopSec=${STOP_LIMIT_MS / 1000}
StandardOutput=journal
StandardError=journal
SyslogIdentifier=${name}
# All processes log as one service, and no line may be dropped.
LogRateLimitIntervalSec=0
LimitNOFILE=524288
LimitCORE=0
TasksMax=4096
OOMScoreAdjust=-900
OOMPolicy=continue
${HARDENING.join("\n")}

[Install]
WantedBy=multi-user.target

[${SECTION}]
DataDir=${JSON.stringify(dataDir)}
Copy=${JSON.stringify(copy)}
`;
}

/**
 * A stop of this unit ends every machine, so systemd refuses one by hand, and with it the restart that a package update asks
 * for. A shutdown stops it all the same. `mayStop`: for the uninstall, which is about to stop it.
 */
export function machinesUnit({ mayStop = false } = {}): string {
  return `${MARK} ${MACHINES_UNIT}
[Unit]
Description=Machines of Vivarium
Documentation=man:systemd.resource-control(5)
RefuseManualStop=${mayStop ? "no" : "yes"}
IgnoreOnIsolate=yes

[Service]
Type=exec
# Only keeps the unit active: the node puts each machine into a group of its own below this unit's.
ExecStart=/bin/sleep infinity
${Object.entries(MACHINES_UNIT_PROPERTIES)
  .map(([name, value]) => `${name}=${value}`)
  .join("\n")}

[${SECTION}]
Machines=yes
`;
}

/** The facts that our units note in their text; undefined for a unit of somebody else. */
export function readUnit(text: string): { dataDir?: string; copy?: string } | undefined {
  if (!text.startsWith(MARK) || !text.includes(`\n[${SECTION}]\n`)) return undefined;
  const noted = (name: string) => {
    const value = new RegExp(`^${name}=(".*")$`, "m").exec(text)?.[1];
    return value === undefined ? undefined : (JSON.parse(value) as string);
  };
  const [dataDir, copy] = [noted("DataDir"), noted("Copy")];
  return { ...(dataDir !== undefined && { dataDir }), ...(copy !== undefined && { copy }) };
}

const command = (argv: string[]) => argv.map((word) => quote(word.replaceAll("$", "$$$$"))).join(" ");

/** A word as systemd reads it from a unit file. */
function quote(word: string): string {
  return escapePercent(/^[\w@:,./=+-]+$/.test(word) ? word : JSON.stringify(word));
}

const escapePercent = (text: string) => text.replaceAll("%", "%%");
