/** Requests per second of server CPU, and latency at a fixed rate, of one URL. */
import { once } from "node:events";
import { Agent, get, type IncomingMessage } from "node:http";
import { get as getSecurely, Agent as SecureAgent } from "node:https";
import autocannon from "autocannon";
import { cpuSeconds } from "./process-costs.ts";

const CONNECTIONS = 16;

/** The URL of a load. `tls`: the server's name and the authority that signed for it, for an https URL. */
export interface Target {
  url: string;
  headers?: Record<string, string>;
  tls?: { ca: string; servername: string };
}

export interface Load {
  requestsPerCpuSecond: number;
  requestsPerSecond: number;
}

export async function saturate(
  { tls, ...target }: Target,
  serverPids: number[],
  durationS: number,
): Promise<Load> {
  const load = {
    ...target,
    connections: CONNECTIONS,
    ...(tls && { tlsOptions: tls, servername: tls.servername }),
  };
  await autocannon({ ...load, duration: 1 });
  const before = cpuSeconds(serverPids);
  const result = await autocannon({ ...load, duration: durationS });
  const spent = cpuSeconds(serverPids) - before;
  if (result.non2xx > 0 || result.errors > 0)
    throw new Error(`${target.url}: ${result.non2xx} refusals, ${result.errors} errors`);
  return {
    requestsPerCpuSecond: result.requests.total / spent,
    requestsPerSecond: result.requests.total / result.duration,
  };
}

/** Milliseconds of each of `rate × durationS` requests, sent at a constant rate, however slow the answers are. */
export async function latencies(target: Target, rate: number, durationS: number): Promise<number[]> {
  const agent = agentFor(target);
  const startedAt = performance.now();
  const requests = Array.from({ length: rate * durationS }, async (_, i) => {
    const dueMs = (i * 1000) / rate;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, dueMs - (performance.now() - startedAt))));
    const sentAt = performance.now();
    await read(target, agent);
    return performance.now() - sentAt;
  });
  return Promise.all(requests).finally(() => agent.destroy());
}

/** Seconds from a request on a new connection to the end of its answer. */
export async function download(target: Target): Promise<number> {
  const agent = agentFor(target);
  const startedAt = performance.now();
  try {
    await read(target, agent);
    return (performance.now() - startedAt) / 1000;
  } finally {
    agent.destroy();
  }
}

function agentFor({ tls }: Target): Agent {
  const options = { keepAlive: true, maxSockets: CONNECTIONS };
  return tls ? new SecureAgent({ ...options, ...tls }) : new Agent(options);
}

async function read({ url, headers, tls }: Target, agent: Agent): Promise<void> {
  const request = (tls ? getSecurely : get)(url, { agent, headers });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  if (response.statusCode !== 200) throw new Error(`${url} answered ${response.statusCode}`);
  await once(response.resume(), "end");
}
