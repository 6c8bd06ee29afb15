/** Servers that stand in for registries, token services and what they redirect to: any host name, by TLS, at one port. */
import { once } from "node:events";
import {
  createServer as createPlainServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
} from "node:http";
import { createServer } from "node:https";
import { type AddressInfo, connect } from "node:net";
import { createSecureContext, type SecureContext, type TLSSocket } from "node:tls";
import { type KeyPair, makeAuthority, signServer } from "@vivarium/kit/certificates";
import type { Dial } from "../src/dial.ts";

export interface SeenRequest {
  host: string;
  /** Path with its query. */
  path: string;
  authorization: string | undefined;
  range: string | undefined;
}

const DAY_MS = 24 * 3_600_000;

/** Made once for all stand-ins of a test file: keys take time. */
let authority: Promise<KeyPair> | undefined;
const contexts = new Map<string, Promise<SecureContext>>();

function theAuthority(): Promise<KeyPair> {
  authority ??= makeAuthority({ name: "Stand-in", notAfter: new Date(Date.now() + DAY_MS) });
  return authority;
}

async function makeContext(host: string): Promise<SecureContext> {
  const { certificatePem, keyPem } = await signServer(await theAuthority(), { host, lifeMs: DAY_MS });
  return createSecureContext({ cert: certificatePem, key: keyPem });
}

export class StandIn implements AsyncDisposable {
  /** The authority of all certificates, PEM. */
  readonly ca: string;
  readonly requests: SeenRequest[] = [];
  /** `host:port` of every connection that was wanted. */
  readonly dialled: string[] = [];
  readonly #hosts = new Map<string, RequestListener>();
  readonly #secure: Server;
  readonly #plain: Server;

  static async start(): Promise<StandIn> {
    const standIn = new StandIn((await theAuthority()).certificatePem);
    for (const server of [standIn.#secure, standIn.#plain])
      await once(server.listen(0, "127.0.0.1"), "listening");
    return standIn;
  }

  private constructor(ca: string) {
    this.ca = ca;
    this.#secure = createServer(
      {
        SNICallback: (host, done) => {
          const made = contexts.get(host) ?? makeContext(host);
          contexts.set(host, made);
          made.then((context) => done(null, context), done);
        },
      },
      (request, response) =>
        this.#answer(String((request.socket as TLSSocket).servername), request, response),
    );
    this.#plain = createPlainServer((request, response) => {
      this.#answer(`http ${request.headers.host?.split(":")[0]}`, request, response);
    });
  }

  /** Answers for a host; `http NAME` for one without TLS. */
  serve(host: string, listener: RequestListener): void {
    this.#hosts.set(host, listener);
  }

  /** Leads every connection here: port 80 and those above 8000 without TLS. A host that is not served refuses. */
  readonly dial: Dial = async (host, port, signal) => {
    this.dialled.push(`${host}:${port}`);
    const isPlain = port === 80 || port > 8000;
    if (!this.#hosts.has(isPlain ? `http ${host}` : host)) throw new Error(`${host} is not served`);
    const { port: real } = (isPlain ? this.#plain : this.#secure).address() as AddressInfo;
    const socket = connect(real, "127.0.0.1");
    await once(socket, "connect", { signal });
    return socket;
  };

  requestsTo(host: string): SeenRequest[] {
    return this.requests.filter((request) => request.host === host);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of [this.#secure, this.#plain]) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  }

  #answer(host: string, request: IncomingMessage, response: Parameters<RequestListener>[1]): void {
    const { authorization, range } = request.headers;
    this.requests.push({ host, path: request.url ?? "", authorization, range });
    const listener = this.#hosts.get(host);
    if (listener) listener(request as never, response as never);
    else response.writeHead(421).end();
  }
}
