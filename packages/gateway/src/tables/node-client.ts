/** Calls to the node over its unix socket for the gateway (contract/gateway/calls.ts). */
import { Agent, request } from "node:http";
import { text } from "node:stream/consumers";

const CALL_MS = 5_000;
/** Connections per path: each path has its own pool, so that no kind of call waits behind another. */
const MOST_SOCKETS = 256;

export class NodeClient {
  readonly socketPath: string;
  readonly #agents = new Map<string, Agent>();

  constructor(socketPath: string) {
    this.socketPath = socketPath;
  }

  /** Rejects when the node does not answer in time. Any status resolves; a body that is not JSON is `undefined`. */
  post(path: string, body: unknown, timeoutMs = CALL_MS): Promise<{ status: number; body: unknown }> {
    const payload = JSON.stringify(body);
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(payload) };
    const signal = AbortSignal.timeout(timeoutMs);
    return new Promise((resolve, reject) => {
      const call = request(
        { socketPath: this.socketPath, path, method: "POST", headers, agent: this.#agentFor(path), signal },
        (response) => {
          text(response).then((answer) => {
            resolve({ status: response.statusCode ?? 0, body: parse(answer) });
          }, reject);
        },
      );
      call.on("error", reject);
      call.end(payload);
    });
  }

  close(): void {
    for (const agent of this.#agents.values()) agent.destroy();
  }

  #agentFor(path: string): Agent {
    const known = this.#agents.get(path);
    if (known) return known;
    const made = new Agent({ keepAlive: true, maxSockets: MOST_SOCKETS });
    this.#agents.set(path, made);
    return made;
  }
}

function parse(answer: string): unknown {
  try {
    return JSON.parse(answer);
  } catch {
    return undefined;
  }
}
