/**
 * One request of a guest to a bound origin and its answer: judged, sent with the credential, and the answer searched for
 * the credential on its way back.
 */
import type { Transform } from "node:stream";
import type { ConnectionEntry } from "@vivarium/contract/gateway";
import { copyBody } from "@vivarium/http1/copy-body";
import { type Guard, guarded } from "@vivarium/http1/guard";
import { type Header, valuesOf } from "@vivarium/http1/headers";
import type { Log } from "@vivarium/kit/log";
import type { Credential } from "./credential.ts";
import { GuardedBody } from "./guarded-body.ts";
import type { GuestRequest } from "./guest-request.ts";
import { type Allowed, judgeRequest, type Refusal, refusal } from "./judge-request.ts";
import type { ActiveConnection, Origin } from "./origin.ts";
import { headersForGuest, headersForOrigin } from "./pass-headers.ts";
import { codingOf, watchRatio, withoutCoding } from "./plain-body.ts";
import { refusalBody } from "./refusal-body.ts";
import type { Sending, Upstream, UpstreamAnswer } from "./upstream.ts";

/** A guest's connection as its requests see it. */
export interface ExchangeDeps {
  origin: Origin;
  log: Log;
  /** Time limit for the head of an answer. */
  answerMs: number;
  /** Whether the session's egress policy allows the origin. */
  isAllowed: () => boolean;
  /** Whether control was reachable lately. */
  isLeased: () => boolean;
  /** Connects to the origin, or returns the connection of earlier requests. Rejects when the origin is not reachable. */
  connect: (active: ActiveConnection) => Promise<Upstream>;
  /** Ends the guest's connection, and everything that serves it. */
  end: () => void;
  report: (entry: Omit<ConnectionEntry, "session_id" | "connection" | "host">) => void;
}

/** Never rejects. */
export async function serveRequest(deps: ExchangeDeps, request: GuestRequest): Promise<void> {
  const exchange = new Exchange(deps, request);
  try {
    await exchange.serve();
  } catch (error) {
    // The error's text is the runtime's: it names headers, not their values.
    deps.log.warn({ err: error }, "a request through a Connection broke");
    exchange.fail();
  }
}

class Exchange {
  readonly #deps: ExchangeDeps;
  readonly #request: GuestRequest;
  readonly #at = new Date().toISOString();
  #path = "";
  #rule: number | undefined;
  #generation: number | undefined;
  #status: number | undefined;
  #sending: Sending | undefined;
  #body: GuardedBody | undefined;
  #decoder: Transform | undefined;
  #giveMemoryBack: (() => void) | undefined;
  #bytesOut = 0;
  #isUnscanned = false;
  #isOver = false;
  #late: NodeJS.Timeout | undefined;
  readonly #guard: Guard = (handler) => guarded(this.#deps.log, handler, () => this.fail());

  constructor(deps: ExchangeDeps, request: GuestRequest) {
    this.#deps = deps;
    this.#request = request;
  }

  async serve(): Promise<void> {
    const { origin, connect, isLeased } = this.#deps;
    const { answer } = this.#request;
    if (!answer.isOpen) return;
    answer.onceOver(this.#guard(() => this.#finish()));
    const admitted = this.#admit();
    if ("code" in admitted) return this.#refuse(admitted);
    const { active, allowed } = admitted;
    this.#path = allowed.path;
    this.#rule = allowed.rule.index;
    this.#generation = active.generation;
    const upstream = await connect(active).catch((error: unknown) => error as Error);
    if (this.#isOver || !answer.isOpen) return;
    // Meanwhile the Connection may have been replaced or ended.
    if (origin.active() !== active)
      return this.#refuse(refusal(origin.closedCode, "the Connection has ended"));
    if (upstream instanceof Error || !isLeased()) return this.#refuse(unreachable());
    this.#send(active, upstream);
  }

  /** Ends the exchange: with an error if nothing was answered yet, otherwise by breaking the answer off. */
  fail(): void {
    if (this.#isOver) return;
    const { answer } = this.#request;
    if (answer.isOpen) this.#refuse(unreachable());
    else answer.cut();
    this.#finish("failed");
  }

  #admit(): { active: ActiveConnection; allowed: Allowed } | Refusal {
    const { origin, isAllowed, isLeased } = this.#deps;
    const active = origin.active();
    if (!active)
      return refusal(origin.closedCode, `the Connection to ${origin.host} may not be used any more`);
    if (!isAllowed()) return refusal("egress_denied", `the egress policy does not allow ${origin.host}`);
    const allowed = judgeRequest(this.#request, { host: origin.host, ...active });
    if ("code" in allowed) return allowed;
    if (!isLeased()) return refusal("connection_upstream", "the service cannot be reached");
    return { active, allowed };
  }

  /** Nothing is awaited between reading the credential and writing it: a revocation comes before or after, not between. */
  #send(active: ActiveConnection, upstream: Upstream): void {
    const { method, target, headers, body, hasBody, answer } = this.#request;
    const value = active.credential.value();
    if (value === undefined) throw new Error("the credential of an active Connection is forgotten");
    const { host } = this.#deps.origin;
    const sent = headersForOrigin(headers, { host, injected: [active.credential.headerName, value] });
    const te = valuesOf(headers, "te").length > 0 ? [["te", "trailers"] as [string, string]] : [];
    this.#sending = upstream.send(
      { method, target, hasBody, headers: [...te, ...sent] },
      {
        onAnswer: this.#guard((received: UpstreamAnswer) => this.#take(active, received)),
        onFailure: () => this.fail(),
        guard: this.#guard,
      },
    );
    this.#late = setTimeout(() => this.fail(), this.#deps.answerMs);
    if (!hasBody) return;
    if (valuesOf(headers, "expect").length > 0) answer.welcome();
    body.on("data", (chunk: Buffer) => {
      this.#bytesOut += chunk.length;
    });
    copyBody(body, this.#sending.body, this.#guard);
  }

  /** Takes a turn for the search of the headers. */
  #take(active: ActiveConnection, received: UpstreamAnswer): void {
    if (this.#isOver) return;
    this.#status = received.status;
    const { share } = this.#deps.origin;
    share.search(
      costOf(received.headers),
      this.#guard(() => this.#answer(active, received)),
    );
  }

  #answer({ credential }: ActiveConnection, received: UpstreamAnswer): void {
    if (this.#isOver) return;
    const { answer } = this.#request;
    const { status, isLast } = received;
    const isSecret = (text: string) => credential.isIn(text);
    const { headers, isReflected } = headersForGuest(received.headers, isSecret);
    if (isReflected) this.#noteReflection();
    if (this.#isOver || !answer.isOpen) return;
    const coding = isLast ? ({ kind: "plain" } as const) : codingOf(status, headers);
    this.#isUnscanned = coding.kind === "unreadable";
    if (coding.kind !== "coded") {
      this.#pass({ ...received, headers }, credential);
      return;
    }
    const begin = () => {
      if (this.#isOver || !answer.isOpen) return;
      this.#decoder = coding.decoder.make();
      this.#pass({ ...received, headers: withoutCoding(headers) }, credential);
    };
    this.#giveMemoryBack = this.#deps.origin.share.takeMemory(coding.decoder.bytes, this.#guard(begin));
  }

  /** Passes the answer on. Its headers were searched, its body is searched on the way. */
  #pass({ status, headers, body, isLast, trailers }: UpstreamAnswer, credential: Credential): void {
    clearTimeout(this.#late);
    const { answer } = this.#request;
    const { share } = this.#deps.origin;
    answer.sendHead(status, headers, isLast);
    if (isLast) return void body.resume();
    const guardedBody = new GuardedBody({
      ...{ scan: credential.scan(), share, guard: this.#guard, to: answer.to },
      onEnd: () => {
        trailers().then(
          this.#guard((received) => this.#searchTrailers(received, credential)),
          () => this.fail(),
        );
      },
      onHit: () => {
        this.#noteReflection();
        this.#deps.end();
      },
    });
    this.#body = guardedBody;
    const to = this.#decoder ?? guardedBody;
    if (this.#decoder) this.#watch(this.#decoder).pipe(guardedBody);
    // An empty body may have ended while the answer waited for its turn.
    if (body.readableEnded) to.end();
    else copyBody(body, to, this.#guard);
  }

  #watch(decoder: Transform): Transform {
    decoder.on("error", () => this.fail());
    watchRatio(decoder, () => this.fail());
    return decoder;
  }

  #searchTrailers(received: readonly Header[], credential: Credential): void {
    const { share } = this.#deps.origin;
    const search = () => {
      if (this.#isOver) return;
      const trailers = headersForGuest(received, (text) => credential.isIn(text));
      if (trailers.isReflected) this.#noteReflection();
      if (!this.#isOver) this.#request.answer.end(trailers.headers);
    };
    share.search(costOf(received), this.#guard(search));
  }

  #noteReflection(): void {
    this.#report("reflected");
    void this.#deps.origin.noteReflection();
  }

  #refuse({ status, code, error }: Refusal): void {
    if (this.#isOver) return;
    this.#status = status;
    this.#finish(this.#sending || code === "connection_upstream" ? "failed" : "denied", code);
    const { answer } = this.#request;
    try {
      if (answer.isOpen) answer.refuse(status, refusalBody({ status, code, error }));
    } catch (cause) {
      this.#deps.log.warn({ err: cause }, "a refusal could not be sent to a guest");
      this.#deps.end();
    }
  }

  /** The exchange is over: nothing more is read or sent. */
  #finish(event: ConnectionEntry["event"] = "used", code?: ConnectionEntry["code"]): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#late);
    this.#sending?.destroy();
    this.#decoder?.destroy();
    this.#giveMemoryBack?.();
    this.#body?.destroy();
    if (event !== "used" || this.#sending) this.#report(event, code);
  }

  #report(event: ConnectionEntry["event"], code?: ConnectionEntry["code"]): void {
    const { method, target } = this.#request;
    this.#deps.report({
      at: this.#at,
      event,
      method: method.slice(0, 32),
      path: (this.#path || printable(target.split("?", 1)[0] ?? "")).slice(0, 1024),
      ...(this.#status !== undefined && { status: this.#status }),
      ...(code !== undefined && { code }),
      ...(this.#rule !== undefined && { rule: this.#rule }),
      ...(this.#generation !== undefined && { generation: this.#generation }),
      bytes_out: this.#bytesOut,
      bytes_in: this.#body?.bytes ?? 0,
      is_sent: this.#sending?.isSent() ?? false,
      ...(this.#isUnscanned && { is_unscanned: true }),
    });
  }
}

/** A search of headers in bytes of a body, whose search takes as long: each header is a search of its own. */
function costOf(headers: readonly Header[]): number {
  return headers.reduce((sum, [name, value]) => sum + name.length + value.length + 64, 0);
}

/** A path that was refused may hold any bytes. */
function printable(path: string): string {
  return path.replaceAll(/[^\x21-\x7e]/g, "?");
}

function unreachable(): Refusal {
  return refusal("connection_upstream", "the origin cannot be reached, or does not prove to be the host");
}
