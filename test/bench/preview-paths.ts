/** A guest's web server, requested through its preview and directly, alternating. */
import { Agent, type IncomingMessage, request } from "node:http";
import { percentile, type Row, row, timed } from "./samples.ts";

const MIB = 2 ** 20;
export const APP_PORT = 3000;

/** Answers `/N` with N bytes, over connections that stay open. */
export const APP = `
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def log_message(self, *_): pass
    def do_GET(self):
        body = b"x" * int(self.path[1:])
        head = f"HTTP/1.1 200 OK\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n".encode()
        self.wfile.write(head + body)
ThreadingHTTPServer.request_queue_size = 64
ThreadingHTTPServer(("0.0.0.0", ${APP_PORT}), App).serve_forever()
`;

/** The server itself, or its preview by name. */
export interface Door {
  host: string;
  port: number;
  /** Value of the Host header. */
  name?: string;
}

export interface PreviewEffort {
  rounds: number;
  requests: number;
  mib: number;
}

export async function previewRows(
  where: string,
  doors: { direct: Door; preview: Door },
  effort: PreviewEffort,
): Promise<Row[]> {
  const samples = { direct: emptySamples(), preview: emptySamples() };
  // Alternating, so that a noisy minute of the host affects both alike. The first round warms up.
  for (let i = 0; i <= effort.rounds; i++)
    for (const name of ["direct", "preview"] as const) {
      const taken = await ask(doors[name], effort);
      if (i > 0) for (const kind of KINDS) samples[name][kind].push(...taken[kind]);
    }
  return KINDS.flatMap((kind) => {
    const [what, unit] = TEXTS[kind];
    const { direct, preview } = { direct: samples.direct[kind], preview: samples.preview[kind] };
    const over = `${(percentile(preview, 50) / percentile(direct, 50)).toFixed(2)} × direct`;
    return [
      row(`${where}${what}: guest's server, direct`, unit, direct),
      row(`${where}${what}: preview`, unit, preview, over),
    ];
  });
}

const KINDS = ["kept", "fresh", "body"] as const;
type Samples = Record<(typeof KINDS)[number], number[]>;
const emptySamples = (): Samples => ({ kept: [], fresh: [], body: [] });
const TEXTS: Record<(typeof KINDS)[number], [string, string]> = {
  kept: ["request on an open connection", "ms"],
  fresh: ["request on a new connection", "ms"],
  body: ["body of an answer", "MiB/s"],
};

async function ask(door: Door, { requests, mib }: PreviewEffort): Promise<Samples> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const samples = emptySamples();
  try {
    await get(door, agent, 1);
    for (let i = 0; i < requests; i++) samples.kept.push(await timed(() => get(door, agent, 1)));
    for (let i = 0; i < requests; i++) samples.fresh.push(await timed(() => get(door, false, 1)));
    samples.body.push((mib * 1000) / (await timed(() => get(door, agent, mib * MIB))));
    return samples;
  } finally {
    agent.destroy();
  }
}

/** One answer of so many bytes, whole. */
async function get({ host, port, name }: Door, agent: Agent | false, bytes: number): Promise<void> {
  const headers = { host: name ?? `${host}:${port}` };
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    request({ host, port, path: `/${bytes}`, agent, headers }, resolve)
      .once("error", reject)
      .end();
  });
  let got = 0;
  for await (const chunk of response) got += (chunk as Buffer).length;
  if (response.statusCode === 200 && got === bytes) return;
  throw new Error(`${headers.host} answered ${response.statusCode} with ${got} of ${bytes} bytes`);
}
