/** Requests per second of server CPU, and latency at a fixed rate, of one URL. */
import { Agent, get } from "node:http";
import autocannon from "autocannon";
import { cpuSeconds } from "./process-costs.ts";

const CONNECTIONS = 16;

export interface Load {
  requestsPerCpuSecond: number;
  requestsPerSecond: number;
}

export async function saturate(
  target: { url: string; headers?: Record<string, string> },
  serverPids: number[],
  durationS: number,
): Promise<Load> {
  const load = { ...target, connections: CONNECTIONS };
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
export async function latencies(
  target: { url: string; headers?: Record<string, string> },
  rate: number,
  durationS: number,
): Promise<number[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
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

function read(target: { url: string; headers?: Record<string, string> }, agent: Agent): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = get(target.url, { agent, headers: target.headers }, (response) => {
      response.resume().once("end", () => resolve());
      if (response.statusCode !== 200) reject(new Error(`${target.url} answered ${response.statusCode}`));
    });
    request.once("error", reject);
  });
}
