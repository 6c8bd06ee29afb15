/**
 * Previews: visitors come in, and only where a port was exposed (wire.md 4). The gate decides by the tables alone;
 * nothing is asked of anybody else but a wake, and that only once a request is admitted.
 */
import type { GatewayTables, WakeOutcome } from "@vivarium/contract/gateway";
import type { Log } from "@vivarium/kit/log";

export interface PreviewsConfig {
  /** Where visitors are listened for. Port 0: any free one. */
  listen: { host: string; port: number };
  /** Hosts are `{port}-{session_id}.<nodeDomain>`, in lower case: `localhost`, `previews.example.net`. */
  nodeDomain: string;
  /** Visitors come by https: with `tls` always, without it through a proxy of the operator that ends TLS. */
  secure: boolean;
  /** The port in preview URLs, where it is not the one listened on. */
  publicPort?: number;
  /** PEM files, read again when they change. */
  tls?: { certFile: string; keyFile: string };
  /** How long a request waits for its session to wake. Default 30 s. */
  holdMs?: number;
}

/** What previews need of the table link. */
export interface TablesInForce {
  /** Undefined until the node has sent some: then nobody is let in. */
  current(): GatewayTables | undefined;
  /**
   * The listener is called after `current()` changed. When it returns, what ran under an older version of a route has
   * been cut off; tables count as applied only after that. Returns the end of the subscription.
   */
  subscribe(listener: () => void): () => void;
}

export interface PreviewsDependencies {
  config: PreviewsConfig;
  tables: TablesInForce;
  wake: (sessionId: string) => Promise<WakeOutcome>;
  log: Log;
  /** Bytes of the session's previews moved; called at most once a second per connection. */
  onActive: (sessionId: string) => void;
}

export interface Previews {
  /** Where it listens: `http://127.0.0.1:8080`. */
  url(): string;
  /** Resolves once every connection cut off by tables up to now is closed; await it before POST /v1/applied. */
  settled(): Promise<void>;
  /** Reads certificate and key again, as on SIGHUP. Files that do not fit are logged and the old pair stays. */
  reloadCertificate(): void;
  close(): Promise<void>;
}

export async function startPreviews(_deps: PreviewsDependencies): Promise<Previews> {
  throw new Error("previews are not built yet");
}
