import path from "node:path";
import type { PreviewsConfig } from "./previews/start.ts";

/** What the gateway is told from outside; read once, at start. */
export interface GatewayConfig {
  /** The node's unix socket for its gateway. */
  nodeSocket: string;
  /** System user that the gateway becomes when it is started as root; empty: stay. */
  user: string;
  logLevel: string;
  isSupervised: boolean;
  previews: PreviewsConfig;
}

export function readConfig(env: NodeJS.ProcessEnv): GatewayConfig {
  const dataDir = path.resolve(env.VIV_DATA_DIR ?? "/var/lib/vivarium");
  return {
    nodeSocket: env.VIV_GATEWAY_SOCKET ?? path.join(dataDir, "run/gateway.sock"),
    user: env.VIV_GATEWAY_USER ?? "vivarium-gateway",
    logLevel: env.VIV_LOG_LEVEL ?? "info",
    isSupervised: env.VIV_SUPERVISED === "1",
    previews: readPreviewsConfig(env),
  };
}

function readPreviewsConfig(env: NodeJS.ProcessEnv): PreviewsConfig {
  const tls = readTls(env.VIV_INGRESS_TLS_CERT, env.VIV_INGRESS_TLS_KEY);
  const publicPort = env.VIV_INGRESS_PUBLIC_PORT;
  return {
    listen: readListen(env.VIV_INGRESS_LISTEN ?? "127.0.0.1:7401"),
    nodeDomain: (env.VIV_NODE_DOMAIN ?? "localhost").toLowerCase(),
    secure: tls !== undefined || env.VIV_INGRESS_SECURE === "1",
    ...(publicPort !== undefined && { publicPort: readPort("VIV_INGRESS_PUBLIC_PORT", publicPort) }),
    ...(tls && { tls }),
  };
}

function readTls(certFile: string | undefined, keyFile: string | undefined) {
  if (!certFile && !keyFile) return undefined;
  if (!certFile || !keyFile) {
    throw new Error(
      "VIV_INGRESS_TLS_CERT and VIV_INGRESS_TLS_KEY name one pair: set both, or neither for plain HTTP",
    );
  }
  return { certFile: path.resolve(certFile), keyFile: path.resolve(keyFile) };
}

function readListen(text: string): { host: string; port: number } {
  const match = /^(.+):(\d+)$/.exec(text);
  if (!match?.[1] || !match[2]) {
    throw new Error(`VIV_INGRESS_LISTEN is "${text}"; expected <address>:<port>, such as 127.0.0.1:7401`);
  }
  return { host: match[1].replace(/^\[(.*)\]$/, "$1"), port: readPort("VIV_INGRESS_LISTEN", match[2]) };
}

function readPort(name: string, text: string): number {
  const port = Number(text);
  if (Number.isInteger(port) && port >= 0 && port <= 65_535) return port;
  throw new Error(`${name} names port "${text}"; expected a number from 0 to 65535`);
}
