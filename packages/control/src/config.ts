/** Reads the configuration from the environment. No other file of control reads the environment. */
import path from "node:path";
import { LIMITS } from "@vivarium/contract/api";
import { OPENING_RULES } from "@vivarium/contract/gateway";
import { readOpenings } from "@vivarium/kit/ipv4-openings";
import { readRanges } from "@vivarium/kit/ipv4-ranges";
import { messageOf } from "@vivarium/kit/unknown-error";
import { readS3Settings } from "@vivarium/objects/s3-settings";
import { z } from "zod";
import type { ObjectSettings } from "./open-objects.ts";
import type { KekSource } from "./secrets/kek-source.ts";
import type { PreviewSite } from "./sessions/preview-urls.ts";
import type { VolumeSizes } from "./volumes/quota.ts";

const LOG_LEVELS = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

const MOST_WRONG_CREDENTIALS = 1_000_000;

const HOST_PORT = /^(\[[0-9a-fA-F:]+\]|[^:\s]+):[0-9]{1,5}$/;

function listen(usual: string) {
  return z.string().regex(HOST_PORT, `must be host:port, for example ${usual}`).default(usual);
}

function wholeNumber(least: number, most: number, usual: number) {
  const range = `must be a whole number from ${least} to ${most}`;
  return z
    .string()
    .regex(/^[0-9]{1,9}$/, range)
    .transform(Number)
    .refine((count) => count >= least && count <= most, range)
    .default(usual);
}

/** A cap in bytes; 0: no cap. */
function bytes() {
  return z
    .string()
    .regex(/^[0-9]{1,15}$/, "must be a number of bytes, or 0 for none")
    .default("0")
    .transform(Number);
}

const Environment = z.object({
  VIV_DATA_DIR: z.string().startsWith("/", "must be an absolute path").default("/var/lib/vivarium"),
  VIV_OBJECTS_DIR: z.string().startsWith("/", "must be an absolute path").optional(),
  VIV_PUBLIC_URL: z
    .url({
      protocol: /^https?$/,
      error: "must be the address of this service, for example https://viv.example.net",
    })
    .optional(),
  VIV_NODE_SOCKET: z.string().startsWith("/", "must be an absolute path").optional(),
  DATABASE_URL: z.string({ error: "is required: the address of a PostgreSQL database, postgres://…" }).min(1),
  VIV_LISTEN: listen("127.0.0.1:7400"),
  VIV_METRICS_LISTEN: z.string().regex(HOST_PORT, "must be host:port, for example 127.0.0.1:7402").optional(),
  VIV_LOG_LEVEL: z.enum(LOG_LEVELS).default("info"),
  VIV_CONTROL_USER: z.string().default("vivarium"),
  VIV_SUPERVISED: z.string().optional(),
  VIV_SOLE_CONTROL: z.enum(["0", "1"]).default("0"),
  VIV_ARCHIVES: z.enum(["0", "1"]).optional(),
  VIV_REQUIRE_DURABLE_PAUSE: z.enum(["0", "1"]).default("0"),
  VIV_CRASH_AT: z.string().optional(),
  VIV_SESSION_EGRESS_CAP_BYTES: bytes(),
  VIV_ORG_EGRESS_CAP_BYTES: bytes(),
  VIV_ORG_EGRESS_CAP_MAX_BYTES: bytes(),
  VIV_KEK_FILE: z.string().startsWith("/", "must be an absolute path").optional(),
  VIV_KEK: z.string().optional(),
  VIV_KEK_COMMAND: z.string().optional(),
  VIV_NEVER_RANGES: z.string().default(""),
  VIV_PRIVATE_OPEN: z.string().default(""),
  VIV_NODE_DOMAIN: z
    .string()
    .toLowerCase()
    .regex(/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/, "must be a domain name, for example preview.example.net")
    .default("localhost"),
  VIV_INGRESS_LISTEN: listen("127.0.0.1:7401"),
  VIV_INGRESS_PUBLIC_PORT: z
    .string()
    .regex(/^[0-9]{1,5}$/, "must be a port")
    .transform(Number)
    .optional(),
  VIV_INGRESS_TLS_CERT: z.string().optional(),
  VIV_INGRESS_SECURE: z.enum(["0", "1"]).default("0"),
  VIV_FORK_CHILDREN: wholeNumber(1, LIMITS.forkChildrenHard, LIMITS.forkChildrenDefault),
  VIV_VOLUME_GB: wholeNumber(1, LIMITS.volumeGbHard, LIMITS.volumeGb),
  VIV_VOLUME_MAX_GB: wholeNumber(1, LIMITS.volumeGbHard, LIMITS.volumeMaxGb),
  VIV_ORG_VOLUME_GB: wholeNumber(0, LIMITS.keyCeilingMax, LIMITS.volumeGbPerOrg),
  VIV_WRONG_CREDENTIALS_PER_MINUTE: wholeNumber(0, MOST_WRONG_CREDENTIALS, LIMITS.wrongCredentialsPerMinute),
  VIV_CONCURRENT_SESSIONS: wholeNumber(1, LIMITS.keyCeilingMax, LIMITS.concurrentSessions),
});

export function readConfig(environment: NodeJS.ProcessEnv = process.env) {
  const parsed = Environment.safeParse(environment);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new Error(`environment variable ${issue?.path.join(".")}: ${issue?.message}`);
  }
  const env = parsed.data;
  const hasBucket = environment.VIV_OBJECTS !== undefined;
  const neverRanges = readRanges("VIV_NEVER_RANGES", env.VIV_NEVER_RANGES);
  return {
    controlDir: path.join(env.VIV_DATA_DIR, "control"),
    /** Where the key-encryption keys are; undefined: there are none, and secrets are refused. */
    kekSource: kekSourceOf(env),
    nodeSocket: env.VIV_NODE_SOCKET ?? path.join(env.VIV_DATA_DIR, "run", "node.sock"),
    objects: objectSettings(env, environment),
    /** The directory of objects where none is set, which was in use before there was a bucket. */
    localObjectsDir: path.join(env.VIV_DATA_DIR, "objects"),
    /** Address under which clients reach this service. */
    publicUrl: (env.VIV_PUBLIC_URL ?? `http://${env.VIV_LISTEN}`).replace(/\/+$/, ""),
    databaseUrl: env.DATABASE_URL,
    listen: parseListen("VIV_LISTEN", env.VIV_LISTEN),
    /** Address for metrics; undefined: no metrics server. */
    metricsListen: env.VIV_METRICS_LISTEN
      ? parseListen("VIV_METRICS_LISTEN", env.VIV_METRICS_LISTEN)
      : undefined,
    /** Scheme, domain and port under which visitors reach previews. Must match the gateway's configuration. */
    previewSite: previewSite(env),
    logLevel: env.VIV_LOG_LEVEL,
    /** System user to become when started as root; empty: stay root. */
    user: env.VIV_CONTROL_USER,
    isSupervised: env.VIV_SUPERVISED === "1",
    /** No other control plane serves this database, as the supervisor or the operator declares. */
    isAlone: env.VIV_SOLE_CONTROL === "1",
    /** Whether saved states are kept in the object store, too: by default in a bucket, and not in a directory of the same disk. */
    hasArchives: hasBucket ? env.VIV_ARCHIVES !== "0" : env.VIV_ARCHIVES === "1",
    /** Whether unused saved states are packed into a directory when the disk is nearly full: where there is no bucket. */
    hasWarmTier: !hasBucket && env.VIV_ARCHIVES === undefined,
    /** Every pause waits until its archive is complete, or is refused: see `MoveDeps`. */
    requireDurablePause: env.VIV_REQUIRE_DURABLE_PAUSE === "1",
    /** Crash point at which this process kills itself, in tests. */
    crashAt: env.VIV_CRASH_AT,
    /** Cap on the children of one fork. */
    forkChildren: env.VIV_FORK_CHILDREN,
    volumeSizes: volumeSizes(env),
    /** Wrong credentials of one address in a minute; 0: no limit. */
    wrongCredentialsPerMinute: env.VIV_WRONG_CREDENTIALS_PER_MINUTE,
    /** Sessions of an organisation that has no ceiling of its own. */
    sessionCeiling: env.VIV_CONCURRENT_SESSIONS,
    egressCaps: {
      sessionBytes: env.VIV_SESSION_EGRESS_CAP_BYTES,
      orgBytes: env.VIV_ORG_EGRESS_CAP_BYTES,
      orgMaxBytes: env.VIV_ORG_EGRESS_CAP_MAX_BYTES,
    },
    /** Addresses that the node closes to all sessions. No egress policy may list one. */
    neverRanges,
    /** Private addresses with a port that the node opens to sessions. An egress policy may list one. */
    privateOpen: readOpenings("VIV_PRIVATE_OPEN", env.VIV_PRIVATE_OPEN, {
      ...OPENING_RULES,
      closed: [...OPENING_RULES.closed, ...neverRanges],
    }),
  };
}

function volumeSizes(env: z.output<typeof Environment>): VolumeSizes {
  const { VIV_VOLUME_GB: usualGb, VIV_VOLUME_MAX_GB: maxGb, VIV_ORG_VOLUME_GB: orgGb } = env;
  if (usualGb > maxGb)
    throw new Error(
      `environment variable VIV_VOLUME_GB: must be at most VIV_VOLUME_MAX_GB, which is ${maxGb}`,
    );
  return { usualGb, maxGb, orgGb };
}

/** Files are kept in a bucket if one is named, else in a directory. */
function objectSettings(env: z.output<typeof Environment>, environment: NodeJS.ProcessEnv): ObjectSettings {
  const s3 = orRefusal(() => readS3Settings(environment));
  if (s3 === undefined) return { dir: env.VIV_OBJECTS_DIR ?? path.join(env.VIV_DATA_DIR, "objects") };
  if (env.VIV_OBJECTS_DIR !== undefined)
    throw new Error("environment variables VIV_OBJECTS and VIV_OBJECTS_DIR: set one of them");
  return { s3 };
}

function orRefusal<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new Error(`environment variable ${messageOf(cause)}`, { cause });
  }
}

/** A service on one machine makes a file of its own if it is given no key. */
function kekSourceOf(env: z.output<typeof Environment>): KekSource | undefined {
  const { VIV_KEK_FILE: file, VIV_KEK: text, VIV_KEK_COMMAND: command } = env;
  const given = [file, text, command].filter(Boolean);
  if (given.length > 1)
    throw new Error("environment variables VIV_KEK_FILE, VIV_KEK and VIV_KEK_COMMAND: set one of them");
  if (text) return { kind: "text", text };
  if (command) return { kind: "command", command };
  if (file) return { kind: "file", file, mayMake: false };
  if (env.VIV_SUPERVISED !== "1") return undefined;
  return { kind: "file", file: path.join(env.VIV_DATA_DIR, "control", "kek"), mayMake: true };
}

function previewSite(env: z.output<typeof Environment>): PreviewSite {
  return {
    isSecure: Boolean(env.VIV_INGRESS_TLS_CERT) || env.VIV_INGRESS_SECURE === "1",
    domain: env.VIV_NODE_DOMAIN,
    port: env.VIV_INGRESS_PUBLIC_PORT ?? parseListen("VIV_INGRESS_LISTEN", env.VIV_INGRESS_LISTEN).port,
  };
}

function parseListen(name: string, text: string): { host: string; port: number } {
  const colon = text.lastIndexOf(":");
  const port = Number(text.slice(colon + 1));
  if (port > 65_535)
    throw new Error(`environment variable ${name}: the port must be at most 65535, got ${port}`);
  const host = text.slice(0, colon).replace(/^\[|\]$/g, "");
  // For localhost, Fastify would also start a second server on ::1, which lacks our connection handlers.
  return { host: host === "localhost" ? "127.0.0.1" : host, port };
}
