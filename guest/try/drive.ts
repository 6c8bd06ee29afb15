/**
 * Speaks to an agent by hand: `node guest/try/drive.ts <port-socket> <verb> …`, the verbs below. For trying an agent
 * without the node daemon; the socket is the host end of the port `vivarium.agent`.
 */
import { randomBytes } from "node:crypto";
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import { createConnection, type Socket } from "node:net";
import { buffer, json } from "node:stream/consumers";
import {
  encodeFrame,
  FRAME,
  FrameDecoder,
  HELLO_INTERVAL_MS,
  helloLine,
  readyLine,
} from "@vivarium/contract/guest";

const USAGE = `usage: drive.ts <port-socket> <verb>
  health | freeze | thaw | power-off
  exec <command> [argument…]      runs it; options as JSON in EXEC, e.g. EXEC='{"timeout_ms":1000}'
  put <path> [mode]               a file from stdin
  resumed [hostname]              fresh entropy and clock, with a hostname also an identity
  time <n> <command> [argument…]  round trips of n runs, in milliseconds`;

export async function openAgent(path: string): Promise<ClientHttp2Session> {
  const socket = createConnection(path);
  await resync(socket);
  return connect("http://agent", { createConnection: () => socket });
}

async function resync(socket: Socket): Promise<void> {
  const nonce = randomBytes(16).toString("hex");
  const greet = () => socket.write(helloLine(nonce));
  const greeting = setInterval(greet, HELLO_INTERVAL_MS);
  greet();
  let seen = Buffer.alloc(0);
  const ready = Buffer.from(readyLine(nonce));
  await new Promise<void>((resolve, reject) => {
    socket.on("error", reject);
    socket.on("data", function look(chunk: Buffer) {
      seen = Buffer.concat([seen, chunk]);
      const at = seen.indexOf(ready);
      if (at < 0) return;
      socket.off("data", look).off("error", reject).pause();
      if (at + ready.length < seen.length) socket.unshift(seen.subarray(at + ready.length));
      resolve();
    });
  }).finally(() => clearInterval(greeting));
}

export async function call(agent: ClientHttp2Session, method: string, path: string, body?: unknown) {
  const stream = agent.request({ ":method": method, ":path": path });
  const content = body instanceof Uint8Array || body === undefined ? body : JSON.stringify(body);
  stream.end(content);
  const status = await statusOf(stream);
  return { status, body: (await json(stream)) as Record<string, unknown> };
}

export async function startExec(agent: ClientHttp2Session, spec: Record<string, unknown>) {
  const stream = agent.request({ ":method": "POST", ":path": "/v1/exec" });
  stream.end(JSON.stringify({ env: {}, timeout_ms: 0, ...spec }));
  const status = await statusOf(stream);
  if (status !== 200) throw new Error(`${status} ${await buffer(stream)}`);
  return stream;
}

async function statusOf(stream: ClientHttp2Stream): Promise<number> {
  const headers = await new Promise<Record<string, unknown>>((resolve, reject) => {
    stream.once("response", resolve).once("error", reject);
  });
  return Number(headers[":status"]);
}

export async function* framesOf(stream: ClientHttp2Stream) {
  const decoder = new FrameDecoder();
  for await (const chunk of stream) yield* decoder.push(chunk as Buffer);
}

async function execToConsole(agent: ClientHttp2Session, argv: string[]): Promise<number> {
  const options = JSON.parse(process.env.EXEC ?? "{}") as Record<string, unknown>;
  for await (const { type, payload } of framesOf(await startExec(agent, { argv, ...options }))) {
    if (type === FRAME.stdout) process.stdout.write(payload);
    else if (type === FRAME.stderr) process.stderr.write(payload);
    else {
      console.error(payload.toString());
      return type === FRAME.exit ? (JSON.parse(payload.toString()) as { exit_code: number }).exit_code : 1;
    }
  }
  throw new Error(
    `the stream broke off; expected ${encodeFrame(FRAME.exit, "{}").toString("hex")} or an error`,
  );
}

async function timeExec(agent: ClientHttp2Session, count: number, argv: string[]) {
  const trips: number[] = [];
  const inside: number[] = [];
  for (let run = 0; run < count; run++) {
    const began = performance.now();
    for await (const { type, payload } of framesOf(await startExec(agent, { argv })))
      if (type === FRAME.exit) inside.push(JSON.parse(payload.toString()).duration_us / 1000);
    trips.push(performance.now() - began);
  }
  const middle = (all: number[]) => all.toSorted((a, b) => a - b)[all.length >> 1];
  console.log({ first: trips[0], median: middle(trips), medianInGuest: middle(inside) });
}

async function main([path, verb, ...rest]: string[]) {
  if (path === undefined || verb === undefined) return console.error(USAGE);
  const agent = await openAgent(path);
  if (verb === "health") console.log(await call(agent, "GET", "/v1/health"));
  else if (verb === "freeze" || verb === "thaw" || verb === "power-off")
    console.log(await call(agent, "POST", `/v1/${verb}`));
  else if (verb === "put") {
    const query = new URLSearchParams({ path: rest[0] ?? "", ...(rest[1] && { mode: rest[1] }) });
    console.log(await call(agent, "PUT", `/v1/files?${query}`, await buffer(process.stdin)));
  } else if (verb === "resumed") console.log(await call(agent, "POST", "/v1/resumed", resumed(rest[0])));
  else if (verb === "exec") process.exitCode = Math.max(0, await execToConsole(agent, rest));
  else if (verb === "time") await timeExec(agent, Number(rest[0]), rest.slice(1));
  else console.error(USAGE);
  agent.destroy();
}

const resumed = (hostname?: string) => ({
  entropy: randomBytes(64).toString("base64"),
  wall_clock_ns: String(BigInt(Date.now()) * 1_000_000n),
  ...(hostname && { identity: { hostname, machine_id: randomBytes(16).toString("hex"), no_sudo: true } }),
});

if (import.meta.main) await main(process.argv.slice(2));
