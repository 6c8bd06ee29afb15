/** Reads the node daemon's configuration from the environment. */
import path from "node:path";
import { OPENING_RULES } from "@vivarium/contract/gateway";
import { readOpenings } from "@vivarium/kit/ipv4-openings";
import { readRanges } from "@vivarium/kit/ipv4-ranges";

/** Default of `VIV_MAX_WARM_MACHINES`. */
const USUAL_MAX_WARM = 8;

/** The configuration, read once, at start. */
export type NodeConfig = ReturnType<typeof readConfig>;

export function readConfig(env: NodeJS.ProcessEnv) {
  const dataDir = path.resolve(env.VIV_DATA_DIR ?? "/var/lib/vivarium");
  const neverRanges = readRanges("VIV_NEVER_RANGES", env.VIV_NEVER_RANGES ?? "");
  return {
    nodeId: env.VIV_NODE_ID ?? "nod_local",
    dataDir,
    /** Kernel, templates and their baselines; may be shared with other services on this host. Read only. */
    imagesDir: path.resolve(env.VIV_IMAGES_DIR ?? path.join(dataDir, "pool/images")),
    socketPath: env.VIV_NODE_SOCKET ?? path.join(dataDir, "run/node.sock"),
    /** Socket on which the gateway of this node fetches its tables. */
    gatewaySocketPath: env.VIV_GATEWAY_SOCKET ?? path.join(dataDir, "run/gateway.sock"),
    /** System user that may use the gateway's socket and reach machines, besides root. Empty: root only. */
    gatewayUser: env.VIV_GATEWAY_USER ?? "vivarium-gateway",
    /** Whether to refuse SMTP to all machines, whatever their policy. */
    closeSmtp: readFlag("VIV_CLOSE_SMTP", env.VIV_CLOSE_SMTP),
    /** Name servers for guests, `address` or `address:port`. Empty: those of this host. */
    resolvers: readResolvers(env.VIV_RESOLVERS ?? ""),
    /** IPv4 ranges `a.b.c.d/n` of this deployment that no guest may reach, in addition to the built-in ones. */
    neverRanges,
    /** Private addresses with a port that guests may reach all the same. */
    privateOpen: readOpenings("VIV_PRIVATE_OPEN", env.VIV_PRIVATE_OPEN ?? "", {
      ...OPENING_RULES,
      closed: [...OPENING_RULES.closed, ...neverRanges],
    }),
    /** JSON file with settings for every new guest. Undefined: none. */
    guestSettingsFile: readPath("VIV_GUEST_SETTINGS", env.VIV_GUEST_SETTINGS),
    logLevel: env.VIV_LOG_LEVEL ?? "info",
    /** System user whose primary group may use `socketPath`. Empty: root only. */
    controlUser: env.VIV_CONTROL_USER ?? "vivarium",
    supervised: env.VIV_SUPERVISED === "1",
    accelerator: readAccelerator(env.VIV_ACCEL),
    /** CPU model of guests that are baked from now on. */
    cpuModel: readCpuModel(env.VIV_CPU_MODEL),
    /** Upper bound on machines, whatever the memory. */
    maxMachines: readCount("VIV_MAX_MACHINES", env.VIV_MAX_MACHINES) ?? 128,
    ...readWarm(env),
    /** Free disk below which new machines are refused. Unset: a tenth of the disk, at most 5 GiB. */
    diskFloorBytes: readCount("VIV_DISK_FLOOR_BYTES", env.VIV_DISK_FLOOR_BYTES),
    /** How far saved states give way to all else while they are packed and unpacked: 0 not at all, 19 entirely. */
    archiveNiceness: Math.min(readCount("VIV_ARCHIVE_NICENESS", env.VIV_ARCHIVE_NICENESS) ?? 15, 19),
    /** Name of a crash point at which a test lets this process die once. */
    crashAt: env.VIV_CRASH_AT,
  };
}

/** Reads a number. Throws on other text, which would compare as NaN, so that no machine would ever start. */
function readCount(name: string, text: string | undefined): number | undefined {
  if (text === undefined || text === "") return undefined;
  if (/^[0-9]{1,15}$/.test(text)) return Number(text);
  throw new Error(`${name} is "${text}"; expected a whole number, such as 2`);
}

function readWarm(env: NodeJS.ProcessEnv) {
  const least = readCount("VIV_WARM_MACHINES", env.VIV_WARM_MACHINES) ?? 1;
  const most = readCount("VIV_MAX_WARM_MACHINES", env.VIV_MAX_WARM_MACHINES);
  if (most !== undefined && most < least)
    throw new Error(
      `VIV_MAX_WARM_MACHINES is "${most}"; expected at least VIV_WARM_MACHINES, which is ${least}`,
    );
  return {
    /** Machines kept ready per hot template and size, however seldom they are wanted. 0: none at all. */
    warmMachines: least,
    /** Most machines kept ready per template or saved state and size, however often they are wanted. */
    maxWarmMachines: least === 0 ? 0 : (most ?? Math.max(least, USUAL_MAX_WARM)),
  };
}

/** Reads a path. Throws on a relative one: the daemon has another working directory than its operator. */
function readPath(name: string, text: string | undefined): string | undefined {
  if (text === undefined || text === "") return undefined;
  if (path.isAbsolute(text)) return text;
  throw new Error(`${name} is "${text}"; expected an absolute path, such as /etc/vivarium/guest.json`);
}

/** Reads a yes or no. Throws on other text, so that a misspelled yes does not count as no. */
function readFlag(name: string, text = "0"): boolean {
  if (["0", "1", ""].includes(text)) return text === "1";
  throw new Error(`${name} is "${text}"; expected 0 or 1`);
}

function readResolvers(text: string): string[] {
  const resolvers = text.split(",").filter((part) => part !== "");
  const wrong = resolvers.find((resolver) => !/^\d+\.\d+\.\d+\.\d+(:\d+)?$/.test(resolver));
  if (wrong === undefined) return resolvers;
  throw new Error(
    `VIV_RESOLVERS names "${wrong}"; expected IPv4 addresses with commas between, each with :port or not`,
  );
}

function readAccelerator(text = ""): "auto" | "kvm" | "tcg" {
  if (text === "kvm" || text === "tcg") return text;
  if (text === "auto" || text === "") return "auto";
  throw new Error(`VIV_ACCEL is "${text}"; expected kvm, tcg or auto`);
}

/** Reads a name that becomes part of an argument of QEMU, where a comma would begin another option. */
function readCpuModel(text = ""): string {
  if (text === "") return "host";
  // QEMU's own names for "everything there is", which would not be recorded as the host's CPU.
  if (text !== "max" && text !== "base" && /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(text)) return text;
  throw new Error(
    `VIV_CPU_MODEL is "${text}"; expected host, x86-64-v2, x86-64-v3, x86-64-v4, or a model that qemu-system-x86_64 -cpu help names`,
  );
}
