/** Rows about streams: a command's output, uploads and downloads, beside the bare port that they all go through. */
import { once } from "node:events";
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { Client } from "@vivarium/sdk";
import type { Loadable } from "../../packages/node/src/snapshots/manifest.ts";
import { TapNamespace } from "../support/machine-by-hand.ts";
import { machinePid } from "../support/machine-traces.ts";
import { type ServiceFacts, servicePid } from "../support/service.ts";
import { openBarePort, writeBlocks } from "./bare-port.ts";
import { percentile, type Row, row, timed } from "./samples.ts";
import { StreamCosts } from "./stream-costs.ts";

const MIB = 2 ** 20;

export async function streamRows(
  facts: ServiceFacts,
  baseline: Loadable,
  effort: { mib: number; n: number },
) {
  const bytes = effort.mib * MIB;
  const network = await TapNamespace.make("bench");
  const port = await openBarePort(baseline, join(facts.dataDir, "pool"), network, bytes);
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const { session_id: id } = await client.sessions.create();
  const streams = sessionStreams(facts, id, bytes);
  const speeds: Record<keyof typeof rounds, number[]> = {
    portUp: [],
    portDown: [],
    fileUp: [],
    fileDown: [],
    pipeDown: [],
    output: [],
    up: [],
    down: [],
  };
  const rounds = {
    portUp: port.up,
    portDown: port.down,
    fileUp: port.upToFile,
    fileDown: port.downFromFile,
    pipeDown: port.downFromPipe,
    ...streams,
  };
  try {
    await client.sessions.waitUntilLive(id);
    const costs = costsOf(facts, { id, machine: port.pid, mib: effort.mib });
    // Alternating, so that a noisy minute of the host affects them alike. The first round warms up.
    for (let i = 0; i <= effort.n; i++)
      for (const name of Object.keys(rounds) as (keyof typeof rounds)[]) {
        const ms = await (i > 0 ? costs[name].measured(rounds[name]) : rounds[name]());
        if (i > 0) speeds[name].push((effort.mib * 1000) / ms);
      }
    return rowsOf(speeds, costs);
  } finally {
    await client.sessions.delete(id);
    await port.end();
    await network.remove();
  }
}

type Speeds = Record<keyof BareRounds | "output" | "up" | "down", number[]>;
type Costs = Record<keyof Speeds, StreamCosts>;

/** Besides the machine, this process is the only one on the bare port. */
function costsOf(
  facts: ServiceFacts,
  { id, machine, mib }: { id: string; machine: number; mib: number },
): Costs {
  const bare = () => new StreamCosts({ machine, others: { client: process.pid } }, mib);
  const ours = () => {
    const [node, control] = [servicePid(facts, "node"), servicePid(facts, "control")];
    const others = { node, control, client: process.pid };
    return new StreamCosts({ machine: machinePid(facts.dataDir, id), others }, mib);
  };
  const [portUp, portDown, fileUp, fileDown, pipeDown] = [bare(), bare(), bare(), bare(), bare()];
  return { portUp, portDown, fileUp, fileDown, pipeDown, output: ours(), up: ours(), down: ours() };
}

type BareRounds = Record<"portUp" | "portDown" | "fileUp" | "fileDown" | "pipeDown", () => Promise<number>>;

/**
 * F4 moves bytes that nothing stores. The upper bound of a stream includes the file or the pipe, still without any code
 * of ours: where those rows are below the goal, the guest's processor is the limit.
 */
function rowsOf(speeds: Speeds, costs: Costs): Row[] {
  const ratio = (values: number[], floor: number[]) =>
    (percentile(values, 50) / percentile(floor, 50)).toFixed(2);
  const bare = (values: number[], floor: number[]) => `${ratio(values, floor)} × F4`;
  const over = (values: number[], floor: number[], bareWork: number[]) =>
    `${ratio(values, floor)} × F4 (goal ≥ 0.7), ${ratio(values, bareWork)} × the same by dd`;
  const { portUp, portDown, fileUp, fileDown, pipeDown, output, up, down } = speeds;
  const each = (what: string, name: keyof Speeds, note?: string) =>
    row(what, "MiB/s", speeds[name], [note, `64 MiB cost ${costs[name]}`].filter(Boolean).join("; "));
  return [
    each("F4 bare port, into the guest", "portUp"),
    each("F4 bare port, out of the guest", "portDown"),
    each("bare port into a file, synced, by dd", "fileUp", bare(fileUp, portUp)),
    each("a file out of the bare port, by dd", "fileDown", bare(fileDown, portDown)),
    each("a pipe out of the bare port, by dd", "pipeDown", bare(pipeDown, portDown)),
    each("exec output stream", "output", over(output, portDown, pipeDown)),
    each("file upload", "up", over(up, portUp, fileUp)),
    each("file download", "down", over(down, portDown, fileDown)),
  ];
}

/** By plain requests, read and written like the bare port: the cost of an SDK or `fetch` is not the service's. */
function sessionStreams(facts: ServiceFacts, id: string, bytes: number) {
  const call = (method: string, path: string, headers: Record<string, string | number> = {}) =>
    request(`${facts.url}/v1/sessions/${id}/${path}`, {
      method,
      headers: { authorization: `Bearer ${facts.apiKey}`, ...headers },
    });
  const file = "files/stream?path=bench";
  const command = JSON.stringify({ command: ["head", "-c", String(bytes), "/dev/zero"] });
  return {
    output: () =>
      timed(async () => {
        const exec = call("POST", "exec?stream=true", { "content-type": "application/json" });
        exec.end(command);
        await drain(exec);
      }),
    up: () =>
      timed(async () => {
        const upload = call("PUT", file, { "content-length": bytes });
        const answered = drain(upload);
        await writeBlocks(upload, bytes);
        upload.end();
        await answered;
      }),
    down: () =>
      timed(async () => {
        const download = call("GET", file);
        download.end();
        await drain(download);
      }),
  };
}

async function drain(asked: ClientRequest): Promise<void> {
  const [response] = (await once(asked, "response")) as [IncomingMessage];
  if (response.statusCode !== 200) throw new Error(`${response.statusCode} ${await text(response)}`);
  response.resume();
  await once(response, "end");
}
