/** The only reader of the environment. */
import path from "node:path";
import { z } from "zod";

const LOG_LEVELS = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

const Environment = z.object({
  VIV_DATA_DIR: z.string().startsWith("/", "must be an absolute path").default("/var/lib/vivarium"),
  VIV_NODE_SOCKET: z.string().startsWith("/", "must be an absolute path").optional(),
  DATABASE_URL: z.string({ error: "is required: the address of a PostgreSQL database, postgres://…" }).min(1),
  VIV_LISTEN: z
    .string()
    .regex(/^(\[[0-9a-fA-F:]+\]|[^:\s]+):[0-9]{1,5}$/, "must be host:port, for example 127.0.0.1:7400")
    .default("127.0.0.1:7400"),
  VIV_LOG_LEVEL: z.enum(LOG_LEVELS).default("info"),
  VIV_CONTROL_USER: z.string().default("vivarium"),
  VIV_SUPERVISED: z.string().optional(),
});

export interface Config {
  controlDir: string;
  nodeSocket: string;
  databaseUrl: string;
  listen: { host: string; port: number };
  logLevel: string;
  /** System user to become when started as root; empty: stay. */
  user: string;
  isSupervised: boolean;
}

export function readConfig(environment: NodeJS.ProcessEnv = process.env): Config {
  const parsed = Environment.safeParse(environment);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new Error(`environment variable ${issue?.path.join(".")}: ${issue?.message}`);
  }
  const env = parsed.data;
  return {
    controlDir: path.join(env.VIV_DATA_DIR, "control"),
    nodeSocket: env.VIV_NODE_SOCKET ?? path.join(env.VIV_DATA_DIR, "run", "node.sock"),
    databaseUrl: env.DATABASE_URL,
    listen: parseListen(env.VIV_LISTEN),
    logLevel: env.VIV_LOG_LEVEL,
    user: env.VIV_CONTROL_USER,
    isSupervised: env.VIV_SUPERVISED === "1",
  };
}

function parseListen(text: string): Config["listen"] {
  const colon = text.lastIndexOf(":");
  const port = Number(text.slice(colon + 1));
  if (port > 65_535)
    throw new Error(`environment variable VIV_LISTEN: the port must be at most 65535, got ${port}`);
  return { host: text.slice(0, colon).replace(/^\[|\]$/g, ""), port };
}
