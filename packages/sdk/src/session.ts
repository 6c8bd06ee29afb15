/** `client.session(id)`, the work inside one session. */
import type { Duplex } from "node:stream";
import type { ExecRequest, ExecResult, Exposed } from "@vivarium/contract/api";
import { SessionArtifacts } from "./artifacts.ts";
import { CodeContext, type CodeContextOptions, type RunCodeOptions } from "./code/code-context.ts";
import type { CodeExecution } from "./code/code-result.ts";
import { SessionConnections } from "./connections.ts";
import { type ExecEvent, execBuffered, execStream } from "./exec.ts";
import { Files } from "./files/files.ts";
import { Cap } from "./network/cap.ts";
import { Egress } from "./network/egress.ts";
import {
  type ExposeOptions,
  exposePort,
  openPreview,
  type PreviewOptions,
  unexposePort,
} from "./network/expose.ts";
import type { Preview } from "./network/preview.ts";
import { Processes } from "./processes.ts";
import type { Terminal, TerminalOptions } from "./terminals/terminal.ts";
import { Tokens } from "./tokens.ts";
import type { CallOptions, Transport } from "./transport.ts";

/**
 * Work inside one session, made by `client.session(id)` without a request. `client.sessions` creates, pauses and ends
 * sessions. Every call waits for a session that is being created and wakes a paused session, unless its description
 * says otherwise.
 *
 * @example
 * const { session_id } = await client.sessions.create();
 * const session = client.session(session_id);
 * await session.files.write("hello.txt", "hello\n");
 * const { stdout } = await session.exec({ command: ["cat", "hello.txt"] });
 */
export class Session {
  readonly id: string;
  /** Files below /workspace. */
  readonly files: Files;
  /** Files captured out of the session, which outlive it. */
  readonly artifacts: SessionArtifacts;
  /** Named processes that outlive requests. */
  readonly processes: Processes;
  /** Egress policy and egress log of the session. */
  readonly egress: Egress;
  /** Credentials for this session alone. */
  readonly tokens: Tokens;
  /** Credentials that the service adds to the session's requests. */
  readonly connections: SessionConnections;
  /** Daily egress cap of the session. */
  readonly cap: Cap;
  readonly #transport: Transport;
  #defaultContext: CodeContext | undefined;

  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.id = id;
    this.files = new Files(transport, id);
    this.artifacts = new SessionArtifacts(transport, id);
    this.processes = new Processes(transport, id);
    this.egress = new Egress(transport, id);
    this.cap = new Cap(transport, id);
    this.connections = new SessionConnections(transport, id);
    this.tokens = new Tokens(transport, id);
  }

  /** Runs a command in this session, as `client.sessions.exec` does. */
  exec(request: ExecRequest, options: CallOptions = {}): Promise<ExecResult> {
    return execBuffered(this.#transport, this.id, request, options);
  }

  /** Streams a command in this session, as `client.sessions.execStream` does. */
  execStream(request: ExecRequest, options: CallOptions = {}): AsyncGenerator<ExecEvent, void, void> {
    return execStream(this.#transport, this.id, request, options);
  }

  /**
   * Opens a terminal (docs/spec/terminals.md; in Node). Rejects with `rate_limited` over 16 terminals, and with
   * `session_unavailable` when the session does not wake in 25 s. Aborting the signal ends the terminal.
   *
   * @example
   * const terminal = await session.terminal({ rows: 40, cols: 120 });
   * await terminal.write("ls\n");
   */
  async terminal(options: TerminalOptions = {}): Promise<Terminal> {
    const { openTerminal } = await import("./terminals/terminal.ts");
    return await openTerminal(this.#transport, this.id, options);
  }

  /**
   * Opens a tunnel to the session's SSH server (in Node): a Duplex of the SSH protocol's bytes. It is destroyed with
   * `disconnected` when the service ends it, and with the signal's reason when the signal is aborted.
   *
   * @example
   * const tunnel = await session.tunnel();
   * process.stdin.pipe(tunnel).pipe(process.stdout); // a ProxyCommand
   */
  async tunnel(options: CallOptions = {}): Promise<Duplex> {
    const { openTunnel } = await import("./terminals/tunnel.ts");
    return await openTunnel(this.#transport, this.id, options);
  }

  /**
   * Makes a port reachable from outside, or changes its settings (docs/spec/network.md). The program must listen on
   * 0.0.0.0. If the port has these settings already, nothing changes and a paused session stays paused. `auth_token` is
   * returned only by the call that made it. A call whose answer was lost is repeated, and then returns `unchanged`
   * without an `auth_token`; `rotate` makes a new one. Rejects with `conflict` over 32 ports.
   *
   * @example
   * const { preview_url } = await session.expose(8000);
   * const { auth_token } = await session.expose(9000, { visibility: "public", auth: "bearer" });
   */
  expose(port: number, options: ExposeOptions = {}): Promise<Exposed> {
    return exposePort(this.#transport, this.id, port, options);
  }

  /**
   * Closes a port: its URL, its tokens and its open connections are invalid when the promise resolves. Resolves to
   * whether the port was exposed. Does not wake the session.
   *
   * @example
   * await session.unexpose(8000);
   */
  unexpose(port: number, options: CallOptions = {}): Promise<boolean> {
    return unexposePort(this.#transport, this.id, port, options);
  }

  /**
   * Resolves to a `fetch` for a port that sends the port's tokens (in Node). An exposed port keeps its settings, except
   * that a login URL is removed unless it is given; any other port is exposed as by `expose(port)`. Rejects with
   * `bearer_unknown` when the port has `auth: "bearer"` and `authToken` is missing.
   *
   * @example
   * const preview = await session.preview(8000);
   * const { status } = await preview.fetch("/health");
   */
  preview(port: number, options: PreviewOptions = {}): Promise<Preview> {
    return openPreview(this.#transport, this.id, port, options);
  }

  /**
   * Runs Python in a process of the session that stays (in Node), as a notebook does: variables are kept, and the last
   * expression's value and plots are `results`. The code runs in `context`; calls without one share the context
   * `default`. Other options, errors and limits are those of `CodeContext.run`.
   *
   * @example
   * await session.runCode("import math; r = 2");
   * const { results } = await session.runCode("math.pi * r ** 2", { timeoutMs: 5_000 });
   * console.log(results[0]?.data); // "12.566370614359172"
   */
  runCode(
    code: string,
    options: RunCodeOptions & { context?: CodeContext; language?: "python" } = {},
  ): Promise<CodeExecution> {
    const { context, language = "python", ...runOptions } = options;
    this.#defaultContext ??= this.createCodeContext({ language, name: "default" });
    return (context ?? this.#defaultContext).run(code, runOptions);
  }

  /**
   * Makes a context for `runCode`. Sends no request: its process is started by the first run. The same name is the same
   * context, also for another program. A fork of the session has a copy of it.
   *
   * @example
   * const context = session.createCodeContext({ cwd: "/workspace/project" });
   * await session.runCode("x = 1", { context });
   */
  createCodeContext(options: CodeContextOptions = {}): CodeContext {
    const name = options.name ?? crypto.randomUUID();
    return new CodeContext(this.#transport, this.id, { ...options, name });
  }
}
