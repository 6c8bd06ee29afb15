/** Rows about the API itself: reading a session beside a bare route of the same framework and schema. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { Client } from "@vivarium/sdk";
import { type ServiceFacts, servicePid } from "../support/service.ts";
import { latencies, saturate } from "./http-load.ts";
import { percentile, type Row, row } from "./samples.ts";

const RATE = 300;

export async function apiRows(facts: ServiceFacts, durationS: number): Promise<Row[]> {
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const { session_id: id } = await client.sessions.create();
  await client.sessions.waitUntilLive(id);
  const bare = spawn(process.execPath, [join(import.meta.dirname, "bare-server.ts")], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const [port] = (await once(bare.stdout, "data")) as [Buffer];
    const floorTarget = { url: `http://127.0.0.1:${port.toString().trim()}/v1/sessions/${id}` };
    const headers = { authorization: `Bearer ${facts.apiKey}` };
    const readTarget = { url: `${facts.url}/v1/sessions/${id}`, headers };
    const floor = await saturate(floorTarget, [bare.pid as number], durationS);
    const read = await saturate(readTarget, [servicePid(facts, "control")], durationS);
    const floorMs = await latencies(floorTarget, RATE, durationS);
    const readMs = await latencies(readTarget, RATE, durationS);
    const share = read.requestsPerCpuSecond / floor.requestsPerCpuSecond;
    return [
      row("F5 bare route, requests per CPU second", "req", [floor.requestsPerCpuSecond]),
      row(
        "API read, requests per CPU second",
        "req",
        [read.requestsPerCpuSecond],
        `${share.toFixed(2)} × F5 (goal ≥ 0.5), ${Math.round(read.requestsPerSecond)}/s in all`,
      ),
      row(`F5 bare route at ${RATE}/s`, "ms", floorMs),
      row(`API read at ${RATE}/s`, "ms", readMs, `p99 ${percentile(readMs, 99).toFixed(1)} ms (goal ≤ 10)`),
    ];
  } finally {
    bare.kill();
    await client.sessions.delete(id);
  }
}
