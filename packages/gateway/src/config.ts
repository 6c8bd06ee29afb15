/** Reads the gateway's configuration from environment variables. */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import path from "node:path";
import type { PreviewsConfig } from "./previews/start.ts";
import { compileProxies } from "./previews/trusted-proxies.ts";

export interface GatewayConfig {
  /** Path of the unix socket on which the node serves its gateway. */
  nodeSocket: string;
  /** System user that the gateway becomes when it is started as root; empty: it stays root. */
  user: string;
  logLevel: string;
  isSupervised: boolean;
  /** Certificates of authorities, as PEM, that origins of Connections are verified with beside those of the host. */
  connectionRoots: string[];
  previews: PreviewsConfig;
}

export function readConfig(env: NodeJS.ProcessEnv): GatewayConfig {
  const dataDir = path.resolve(env.VIV_DATA_DIR ?? "/var/lib/vivarium");
  return {
    nodeSocket: env.VIV_GATEWAY_SOCKET ?? path.join(dataDir, "run/gateway.sock"),
    user: env.VIV_GATEWAY_USER ?? "vivarium-gateway",
    logLevel: env.VIV_LOG_LEVEL ?? "info",
    isSupervised: env.VIV_SUPERVISED === "1",
    connectionRoots: readRoots(env.VIV_CONNECTION_ROOTS),
    previews: readPreviewsConfig(env),
  };
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/** Reads the file at the start, which refuses a wrong one: a gateway that runs without it would refuse all its origins. */
function readRoots(file: string | undefined): string[] {
  if (!file) return [];
  const wrong = `VIV_CONNECTION_ROOTS names ${file}`;
  let text: string;
  try {
    text = readFileSync(path.resolve(file), "utf8");
  } catch (cause) {
    throw new Error(`${wrong}, which cannot be read; expected a file of certificates in PEM`, { cause });
  }
  const certificates = text.match(CERTIFICATE) ?? [];
  try {
    for (const certificate of certificates) new X509Certificate(certificate);
  } catch (cause) {
    throw new Error(`${wrong}, of which a certificate cannot be read; expected certificates in PEM`, {
      cause,
    });
  }
  if (certificates.length === 0)
    throw new Error(`${wrong}, which has no certificate; expected certificates in PEM`);
  return [...certificates];
}

function readPreviewsConfig(env: NodeJS.ProcessEnv): PreviewsConfig {
  const tls = readTls(env);
  const publicPort = env.VIV_INGRESS_PUBLIC_PORT;
  return {
    listen: readListen(env.VIV_INGRESS_LISTEN ?? "127.0.0.1:7401"),
    nodeDomain: (env.VIV_NODE_DOMAIN ?? "localhost").toLowerCase(),
    secure: tls !== undefined || env.VIV_INGRESS_SECURE === "1",
    ...(publicPort !== undefined && { publicPort: readPort("VIV_INGRESS_PUBLIC_PORT", publicPort) }),
    ...(env.VIV_INGRESS_TRUSTED_PROXIES && {
      trustedProxies: readProxies(env.VIV_INGRESS_TRUSTED_PROXIES),
    }),
    ...(tls && { tls }),
  };
}

/** Throws for an entry that is no address or range: a proxy that is silently not trusted would go unnoticed. */
function readProxies(text: string): string[] {
  const entries = text
    .split(",")
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
  try {
    compileProxies(entries);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`VIV_INGRESS_TRUSTED_PROXIES: ${reason}`, { cause });
  }
  return entries;
}

function readTls(env: NodeJS.ProcessEnv): PreviewsConfig["tls"] {
  const { VIV_INGRESS_TLS_CERT: certFile, VIV_INGRESS_TLS_KEY: keyFile } = env;
  if (!certFile && !keyFile && !env.VIV_INGRESS_ACME_DIRECTORY) return undefined;
  if (!certFile || !keyFile) {
    throw new Error(
      "VIV_INGRESS_TLS_CERT and VIV_INGRESS_TLS_KEY name one pair, which VIV_INGRESS_ACME_DIRECTORY makes and renews: set both, or none of them for plain HTTP",
    );
  }
  const acme = readAcme(env);
  return { certFile: path.resolve(certFile), keyFile: path.resolve(keyFile), ...(acme && { acme }) };
}

/** The ACME authority that issues the pair. The name is a wildcard, so the authority asks for a TXT record in DNS. */
function readAcme(env: NodeJS.ProcessEnv) {
  const directoryUrl = env.VIV_INGRESS_ACME_DIRECTORY;
  if (!directoryUrl) return undefined;
  const { VIV_INGRESS_ACME_DNS_HOOK: dnsHook, VIV_INGRESS_ACME_ACCOUNT_KEY: accountKeyFile } = env;
  if (!dnsHook || !accountKeyFile) {
    throw new Error(
      "VIV_INGRESS_ACME_DIRECTORY needs VIV_INGRESS_ACME_DNS_HOOK, a program that sets a TXT record, and VIV_INGRESS_ACME_ACCOUNT_KEY, a file for the account's key",
    );
  }
  const email = env.VIV_INGRESS_ACME_EMAIL;
  return {
    directoryUrl,
    dnsHook: path.resolve(dnsHook),
    accountKeyFile: path.resolve(accountKeyFile),
    ...(email && { email }),
  };
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
