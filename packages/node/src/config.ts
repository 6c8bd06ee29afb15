/** Reads the node daemon's configuration from the environment. */
import { accessSync, constants } from "node:fs";
import path from "node:path";
import { readRanges } from "@vivarium/kit/ipv4-ranges";

/** Default of `VIV_MAX_WARM_MACHINES`. */
const USUAL_MAX_WARM = 8;

/** The configuration, read once, at start. */
export type NodeConfig = ReturnType<typeof readConfig>;

export function readConfig(env: NodeJS.ProcessEnv) {
  const dataDir = path.resolve(env.VIV_DATA_DIR ?? "/var/lib/vivarium");
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
    neverRanges: readRanges("VIV_NEVER_RANGES", env.VIV_NEVER_RANGES ?? ""),
    logLevel: env.VIV_LOG_LEVEL ?? "info",
    /** System user whose primary group may use `socketPath`. Empty: root only. */
    controlUser: env.VIV_CONTROL_USER ?? "vivarium",
    supervised: env.VIV_SUPERVISED === "1",
    /** Upper bound on machines, whatever the memory. */
    maxMachines: readCount("VIV_MAX_MACHINES", env.VIV_MAX_MACHINES) ?? 128,
    ...readWarm(env),
    /** Free disk below which new machines are refused. Unset: a tenth of the disk, at most 5 GiB. */
    diskFloorBytes: readCount("VIV_DISK_FLOOR_BYTES", env.VIV_DISK_FLOOR_BYTES),
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

/** The accelerators to try, in order. `VIV_ACCEL`: kvm, tcg or auto (kvm where the device can be opened, then tcg). */
export function wantedAccelerators(env: NodeJS.ProcessEnv): ("kvm" | "tcg")[] {
  const wanted = env.VIV_ACCEL ?? "auto";
  if (wanted === "kvm" || wanted === "tcg") return [wanted];
  if (wanted !== "auto") throw new Error(`VIV_ACCEL is "${wanted}"; expected kvm, tcg or auto`);
  try {
    accessSync("/dev/kvm", constants.R_OK | constants.W_OK);
    return ["kvm", "tcg"];
  } catch {
    return ["tcg"];
  }
}
