/** Constructs and connects the parts of the gateway: the link to the node, egress, previews. */
import type { ConnectionEntry } from "@vivarium/contract/gateway";
import type { Log } from "@vivarium/kit/log";
import type { GatewayConfig } from "./config.ts";
import { BoundConnections } from "./connections/bound-connections.ts";
import { followConnections } from "./connections/follow-connections.ts";
import { Interceptor, type InterceptorDeps } from "./connections/interceptor.ts";
import { systemRoots } from "./connections/upstream.ts";
import { listenTcp, listenUdp } from "./dns/listen.ts";
import { NameRateLimit } from "./dns/name-rate-limit.ts";
import { QuestionRateLimit } from "./dns/question-rate-limit.ts";
import { Resolver } from "./dns/resolver.ts";
import { GuestFlows } from "./egress/guest-flows.ts";
import { listenHttp } from "./egress/http-front.ts";
import { listenTls } from "./egress/tls-front.ts";
import { EgressLog } from "./egress-log/lines.ts";
import { reportFlows } from "./egress-log/report-to-node.ts";
import { lineOf } from "./egress-log/request-lines.ts";
import { keepPreviews } from "./previews/keep-previews.ts";
import { askForWake } from "./tables/ask-for-wake.ts";
import { CurrentTables } from "./tables/current-tables.ts";
import { followTables } from "./tables/follow-tables.ts";
import { NodeClient } from "./tables/node-client.ts";
import { PerMachine } from "./tables/per-machine.ts";
import { Slots } from "./tables/slots.ts";

export async function startApp(config: GatewayConfig, log: Log) {
  const node = new NodeClient(config.nodeSocket);
  const tables = new CurrentTables();
  const egressLog = new EgressLog();
  const { connectionRoots } = config;
  // Read at once only where the operator has authorities: the host's store takes a while.
  const interceptor = connectionRoots.length > 0 ? { roots: systemRoots(connectionRoots) } : undefined;
  const egress = startEgress({ node, tables, egressLog, interceptor, log });
  const previews = await keepPreviews({
    config: config.previews,
    tables,
    wake: (sessionId) => askForWake({ node, log }, sessionId),
    onActive: (sessionId) => egressLog.active(sessionId),
    log,
  });
  const settled = () => Promise.all([egress.settled(), previews.settled()]);
  const stopping = new AbortController();
  const background = [
    followTables({ node, tables, settled, log }, stopping.signal),
    followConnections({ node, bound: egress.bound, log }, stopping.signal),
    reportFlows({ node, egressLog, log }, stopping.signal),
  ];
  return {
    reloadCertificate: () => previews.reloadCertificate(),
    async close() {
      egress.close();
      await previews.close();
      stopping.abort();
      await Promise.all(background);
      node.close();
    },
  };
}

export interface EgressParts {
  node: NodeClient;
  tables: CurrentTables;
  egressLog: EgressLog;
  log: Log;
  /** Maps the port that a guest dialled to the port that the gateway dials. The same port, except in tests. */
  dialledPort?: (port: number) => number;
  /** Milliseconds: for one question to a name server, and of silence on a guest's DNS connection. Set by tests only. */
  dnsLimits?: { attemptMs: number; tcpIdleMs: number };
  /** Milliseconds in which a guest names its server. Set by tests only. */
  helloMs?: number | undefined;
  /** The authorities and time limits of Connections. Set by tests only. */
  interceptor?: Pick<InterceptorDeps, "roots" | "limits">;
  /** Called for each request through a Connection. Set by tests only. */
  onRequest?: (entry: ConnectionEntry) => void;
}

export function startEgress(parts: EgressParts) {
  const { tables, log, dialledPort = (port) => port, dnsLimits, helloMs } = parts;
  const resolver = new Resolver({ tables, log, attemptMs: dnsLimits?.attemptMs });
  const dns = {
    ...parts,
    resolver,
    nameRateLimits: new PerMachine(tables, () => new NameRateLimit()),
    tcpRateLimits: new PerMachine(tables, () => new QuestionRateLimit()),
    tcpIdleMs: dnsLimits?.tcpIdleMs,
  };
  const flows = new GuestFlows(parts);
  const bound = new BoundConnections();
  const interceptor = new Interceptor({
    ...{ bound, log, ...parts.interceptor },
    report: (entry) => {
      parts.egressLog.add(lineOf(entry));
      parts.onRequest?.(entry);
    },
  });
  const front = { tables, resolver, dialledPort, flows, bound, interceptor, helloMs, log };
  const openers = [
    (address: string) => listenUdp(dns, address),
    (address: string) => listenTcp(dns, address),
    (address: string) => listenHttp(front, address),
    (address: string) => listenTls(front, address),
  ];
  const slots = new Slots({ tables, openers, log });
  return {
    bound,
    settled: () => slots.settled(),
    close() {
      slots.close();
      flows.close();
    },
  };
}
