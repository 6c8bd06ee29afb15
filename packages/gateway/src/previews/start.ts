/**
 * Starts the server for previews, through which visitors reach exposed ports and nothing else. The gate decides by the
 * tables alone. Only an admitted request can wake a session.
 */
import { existsSync } from "node:fs";
import type { Server } from "node:http";
import { Server as TlsServer } from "node:tls";
import type { WakeOutcome } from "@vivarium/contract/gateway";
import { RequestLimit } from "@vivarium/http1/request-limit";
import type { Log } from "@vivarium/kit/log";
import type { CurrentTables } from "../tables/current-tables.ts";
import { keepCertificate } from "./acme/keep.ts";
import type { AcmeConfig } from "./acme/order.ts";
import { answer, type Ingress } from "./answer.ts";
import { type CertificateFiles, findPair, type Pair, readPair, watchPair } from "./certificate.ts";
import { type Bounds, createListener, listen } from "./listener.ts";
import { SharedWakes } from "./shared-wakes.ts";
import { compileProxies } from "./trusted-proxies.ts";
import { VisitorFlows } from "./visitor-flows.ts";

export interface PreviewsConfig {
  /** The address to listen on. Port 0: any free one. */
  listen: { host: string; port: number };
  /** Hosts are `{port}-{session_id}.<nodeDomain>`, in lower case: `localhost`, `previews.example.net`. */
  nodeDomain: string;
  /** Whether visitors use https: always with `tls`, and behind a proxy of the operator that ends TLS. */
  secure: boolean;
  /** The port in preview URLs. Default: the port that is listened on. */
  publicPort?: number;
  /** Addresses and ranges of the operator's proxies, whose forwarding headers are trusted. Default: no proxies. */
  trustedProxies?: string[];
  /**
   * PEM files, read again when they change. With `acme` an authority issues and renews them. Until the first
   * certificate is issued, every TLS handshake fails.
   */
  tls?: CertificateFiles & { acme?: AcmeConfig };
  /** How long a request waits for its session to wake, in milliseconds. Default: 30,000. */
  holdMs?: number;
  /** How long a request waits behind the others of its preview, in milliseconds. Default: 10,000. */
  lineMs?: number;
  /** Limits of open connections. Default: what one process can carry. */
  bounds?: Partial<Bounds>;
}

/** The tables, as far as previews use them. No visitor is admitted before the node has sent the first. */
export type TablesInForce = Pick<CurrentTables, "current" | "subscribe">;

export interface PreviewsDependencies {
  config: PreviewsConfig;
  tables: TablesInForce;
  wake: (sessionId: string) => Promise<WakeOutcome>;
  log: Log;
  /** Called for each request, and at most once a second per connection while it carries bytes. */
  onActive: (sessionId: string) => void;
}

export type Previews = Awaited<ReturnType<typeof startPreviews>>;

const HOLD_MS = 30_000;
/** Loopback has no limit per address: a proxy on this host has many visitors, trusted or not. */
const isLoopback = compileProxies(["127.0.0.0/8", "::1"]);

export async function startPreviews(deps: PreviewsDependencies) {
  const { config, tables, log } = deps;
  const flows = new VisitorFlows(deps.onActive);
  const ingress: Ingress = {
    // Port 0 is replaced below, once the server listens.
    site: { nodeDomain: config.nodeDomain, secure: config.secure, publicPort: config.publicPort ?? 0 },
    holdMs: config.holdMs ?? HOLD_MS,
    tables,
    wakes: new SharedWakes(deps.wake),
    flows,
    requestLimit: new RequestLimit(config.lineMs),
    isTrustedProxy: compileProxies(config.trustedProxies ?? []),
    log,
    onActive: deps.onActive,
  };
  const server = createListener(
    credentialsFor(config.tls),
    (request, response, upgrade) => answer(ingress, request, response, upgrade),
    {
      bounds: config.bounds,
      log,
      isShared: (address) => isLoopback(address) || ingress.isTrustedProxy(address),
    },
  );
  const { address, family, port } = await listen(server, config.listen, log);
  ingress.site.publicPort = config.publicPort ?? port;
  const unsubscribe = tables.subscribe(() => {
    const now = tables.current();
    if (now) flows.enforce(now);
  });
  const reload = () => reloadPair(server, config.tls, log);
  const unwatch = config.tls ? watchPair(config.tls, reload) : () => undefined;
  const { tls: files, nodeDomain } = config;
  const stopKeeping = files?.acme
    ? keepCertificate({ log }, { acme: files.acme, files, nodeDomain })
    : () => undefined;
  const at = family === "IPv6" ? `[${address}]` : address;
  return {
    /** The URL that the server listens at: `http://127.0.0.1:8080`. */
    url: () => `${config.tls ? "https" : "http"}://${at}:${port}`,
    /** Resolves once every connection that tables have cut off is closed. Awaited before tables are confirmed. */
    settled: () => flows.settled(),
    /** Reads certificate and key again. If they cannot be used, this is logged and the old pair stays. */
    reloadCertificate: reload,
    close: async () => {
      unsubscribe();
      unwatch();
      stopKeeping();
      flows.cutAll();
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}

/** Throws when the operator's pair cannot be used. A pair from `acme` may still be missing. */
function credentialsFor(tls: PreviewsConfig["tls"]): Pair | "none yet" | undefined {
  if (tls === undefined) return undefined;
  return tls.acme ? (findPair(tls) ?? "none yet") : readPair(tls);
}

function reloadPair(server: Server, files: PreviewsConfig["tls"], log: Log): void {
  if (files === undefined || !(server instanceof TlsServer)) return;
  // A missing file is no error while the certificate is being issued.
  if (files.acme && !existsSync(files.certFile)) return;
  try {
    server.setSecureContext({ ...readPair(files), minVersion: "TLSv1.2" });
    log.info({ file: files.certFile }, "previews use the certificate that was read again");
  } catch (error) {
    log.error(
      { err: error, file: files.certFile },
      "certificate and key of previews cannot be used; expected a PEM certificate and its key. The old ones stay",
    );
  }
}
