/** `CodeContext`, which runs Python in a process of a session that keeps its variables. */
import { LIMITS } from "@vivarium/contract/api/limits";
import { VivariumError } from "../errors.ts";
import { type ExecEvent, execStream } from "../exec.ts";
import { Files } from "../files/files.ts";
import { Processes } from "../processes.ts";
import type { CallOptions, Transport } from "../transport.ts";
import type { CodeExecution } from "./code-result.ts";
import { type Listeners, RunCollector } from "./collect-run.ts";
import { type KernelEvent, readKernelEvents } from "./kernel-events.ts";
import { kernelFiles } from "./kernel-files.ts";
import { type RunQueue, runQueueOf } from "./run-queue.ts";

/** Seconds that a new kernel (the Python process) may take to listen. */
const START_S = 20;
const DEFAULT_TIMEOUT_MS = 30_000;
/** The longest timeout of a run: below that of a command, so that the kernel and not the command times out. */
const LONGEST_TIMEOUT_MS = LIMITS.execTimeoutMaxMs - 60_000;
/** Characters of one argument of the asking command: Linux limits an argument to 128 KiB. */
const PIECE_CHARS = 100_000;
/** Characters of a whole request, as JSON in ASCII. */
const REQUEST_CHARS = 512 * 1024;
const NOT_BEGUN = "the run before this one was broken off, and this one was not begun";
/** The error of a run that ended before its own timeout, because its command had reached the time limit of one hour. */
const CUT_OFF = {
  name: "KeyboardInterrupt",
  value:
    "the hour that a command may take was over, some of it while code of another program ran in this context",
  traceback: "",
};

/** Options of a context. */
export interface CodeContextOptions {
  language?: "python";
  /** Name: 1 to 58 of a-z, 0-9 and hyphens. The same name is the same context. Default: a random name. */
  name?: string;
  /** Working directory of the new process. Default: /workspace. */
  cwd?: string;
  /** Keeps the session from pausing while the process runs. Default: false. A pause loses no variables. */
  keepAlive?: boolean;
}

/** Options of one run. */
export interface RunCodeOptions extends CallOptions, Listeners {
  /** Milliseconds from the start of the code. Default: 30,000; at most 59 minutes. */
  timeoutMs?: number;
}

type Request = { do: "run"; code: string; timeout_s: number } | { do: "interrupt" | "restart" };

/**
 * A Python process in a session that keeps its variables from one run to the next, through pauses and into forks. Made
 * by `session.createCodeContext()`. The process is named `code-<name>` and started by the first run. Runs of one
 * context are executed one at a time, in the order of the calls; different contexts run in parallel.
 */
export class CodeContext {
  readonly name: string;
  readonly #transport: Transport;
  readonly #sessionId: string;
  readonly #options: CodeContextOptions;
  /** Whether a kernel has answered: if it is missing later, its variables are lost. */
  #wasThere = false;

  constructor(transport: Transport, sessionId: string, options: CodeContextOptions & { name: string }) {
    this.#transport = transport;
    this.#sessionId = sessionId;
    this.#options = options;
    this.name = options.name;
  }

  /**
   * Runs code as a cell of a notebook: top-level `await` works; `results` are the value of an expression at the end,
   * values given to `display(x)`, and figures of matplotlib, which are then closed. An exception and a timeout are
   * results, not errors. A timeout raises KeyboardInterrupt; code that does not end within 5 s after it is killed.
   *
   * Rejects with `kernel_died` when the process has ended (the next run gets a new one), with `kernel_failed` when the
   * session has no Python 3.9 or it could not be started, and as `execStream` does. When the session is paused
   * meanwhile, it rejects with `exec_failed`, waiting runs too; the code continues after the wake. Aborting interrupts
   * the code.
   *
   * @example
   * await context.run("x = 6");
   * const { results } = await context.run("x * 7");
   * console.log(results[0]?.data); // "42"
   */
  async run(code: string, options: RunCodeOptions = {}): Promise<CodeExecution> {
    const { timeoutMs = DEFAULT_TIMEOUT_MS, signal } = options;
    if (!(timeoutMs > 0 && timeoutMs <= LONGEST_TIMEOUT_MS)) {
      const message = `timeoutMs: must be above 0 and at most ${LONGEST_TIMEOUT_MS}, got ${timeoutMs}`;
      throw new VivariumError("validation", message);
    }
    const pieces = inPieces({ do: "run", code, timeout_s: timeoutMs / 1000 });
    const run = new RunCollector(options);
    return await this.#queue.run(() => this.#collect(run, pieces, { signal }), signal);
  }

  async #collect(run: RunCollector, pieces: string[], options: CallOptions): Promise<CodeExecution> {
    let last: KernelEvent | undefined;
    try {
      for await (const event of this.#askRunning(pieces, options)) {
        last = event;
        await run.take(event);
      }
    } catch (error) {
      // The session may have just been paused: a waiting run would wake it.
      if (hasCode(error, "exec_failed")) this.#queue.drop(new VivariumError("exec_failed", NOT_BEGUN));
      throw error;
    }
    if (last?.event === "end") return run.execution;
    if (last?.event === "died") throw died(last);
    this.#wasThere = false;
    throw lost("the kernel was killed");
  }

  /** Raises KeyboardInterrupt in the running code, if any. */
  async interrupt(options: CallOptions = {}): Promise<void> {
    await this.#sendRequest({ do: "interrupt" }, options);
  }

  /** Starts a new process without variables. A run in flight rejects with `kernel_died`. */
  async restart(options: CallOptions = {}): Promise<void> {
    await this.#sendRequest({ do: "restart" }, options);
    this.#wasThere = false;
  }

  /** Ends the process. Waiting runs reject with `kernel_died`; a later run starts a new process. */
  async close(options: CallOptions = {}): Promise<void> {
    await this.#queue.cutIn(() => this.#end(options), lost("the context was closed"));
  }

  async #end(options: CallOptions): Promise<void> {
    this.#wasThere = false;
    try {
      await this.#processes.kill(this.#processName, options);
    } catch (error) {
      if (!hasCode(error, "not_found")) throw error;
    }
  }

  get #queue(): RunQueue {
    return runQueueOf(this.#transport, `${this.#sessionId}/${this.name}`);
  }

  get #processName(): string {
    return `code-${this.name}`;
  }

  get #socket(): string {
    return `/tmp/.vivarium-code/${this.#processName}.sock`;
  }

  get #processes(): Processes {
    return new Processes(this.#transport, this.#sessionId);
  }

  /** Does nothing without a kernel: there is nothing to interrupt or to restart. */
  async #sendRequest(request: Request, options: CallOptions): Promise<void> {
    await Array.fromAsync(this.#ask(inPieces(request), 0, options));
  }

  /** Asks the kernel. Starts a kernel only if no kernel answers, and replaces it if it still does not. */
  async *#askRunning(pieces: string[], options: CallOptions): AsyncGenerator<KernelEvent, void, void> {
    for (const prepare of [async () => 0, () => this.#start(options), () => this.#replaceKernel(options)]) {
      let absence: KernelEvent["event"] | undefined;
      const seconds = await prepare();
      let hasWaited: boolean;
      do {
        hasWaited = false;
        for await (const event of this.#ask(pieces, seconds, options)) {
          if (event.event === "absent" || event.event === "missing") absence = event.event;
          else if (event.event === "waited") hasWaited = true;
          else yield event;
        }
        // The command timed out while the kernel was busy with another client's code: ask again.
      } while (hasWaited);
      if (absence === undefined) {
        this.#wasThere = true;
        return;
      }
      if (absence === "absent") this.#throwIfLost("the kernel has ended");
    }
    throw new VivariumError("kernel_failed", await this.#complaint(options));
  }

  /** Throws when an earlier kernel's variables are lost, since the caller may rely on them. */
  #throwIfLost(what: string): void {
    if (!this.#wasThere) return;
    this.#wasThere = false;
    throw lost(what);
  }

  /** Runs a command in the guest that sends the request to the kernel and prints the answer (kernel/ask.py). */
  async *#ask(
    pieces: string[],
    waitS: number,
    options: CallOptions,
  ): AsyncGenerator<KernelEvent, void, void> {
    const { pathOf } = await kernelFiles();
    const command = ["python3", "-I", "-S", pathOf("ask.py"), this.#socket, String(waitS), ...pieces];
    const asked = { command, cwd: "/", timeout_ms: LIMITS.execTimeoutMaxMs };
    const watched = new AskOutput(execStream(this.#transport, this.#sessionId, asked, options));
    let hasBegun = false;
    for await (const event of readKernelEvents(watched)) {
      hasBegun ||= event.event === "begin";
      yield event;
    }
    if (watched.hasTimedOut) {
      yield hasBegun ? { event: "end", timedOut: true, error: CUT_OFF } : { event: "waited" };
    } else if (watched.isMissing) yield { event: "missing" };
    else if (watched.exitCode !== 0) throw new VivariumError("kernel_failed", watched.complaint);
  }

  /** Starts a kernel unless another client has just started it. Resolves to the seconds that it may take to listen. */
  async #start(options: CallOptions): Promise<number> {
    const { pathOf, files } = await kernelFiles();
    const { results } = await new Files(this.#transport, this.#sessionId).writeBatch(files, options);
    const failed = results.find(({ ok }) => !ok);
    if (failed) throw new VivariumError("kernel_failed", `${failed.path}: ${failed.error}`);
    const command = ["python3", "-I", pathOf("serve.py"), this.#socket];
    const { cwd, keepAlive: keep_alive } = this.#options;
    try {
      await this.#processes.start({ name: this.#processName, command, cwd, keep_alive }, options);
      this.#throwIfLost("the kernel has ended");
    } catch (error) {
      if (!hasCode(error, "conflict")) throw error;
      // `conflict` means that the kernel runs already, or that 32 other processes run and it cannot be started.
      const { processes } = await this.#processes.list(options);
      const isThere = processes.some(({ name, state }) => name === this.#processName && state === "running");
      if (!isThere) throw error;
    }
    return START_S;
  }

  /** Replaces a kernel that runs but cannot be reached, for example because its socket was deleted. */
  async #replaceKernel(options: CallOptions): Promise<number> {
    const { state } = await this.#processes.get(this.#processName, options);
    if (state === "exited") throw new VivariumError("kernel_failed", await this.#complaint(options));
    await this.#end(options);
    return await this.#start(options);
  }

  async #complaint(options: CallOptions): Promise<string> {
    const { stderr } = await this.#processes.logs(this.#processName, options);
    return `the kernel could not be started: ${stderr.slice(-500) || "it does not say why"}`;
  }
}

/** The standard output of the asking command. Records its error output and how it ended. */
class AskOutput implements AsyncIterable<Uint8Array> {
  readonly #events: AsyncIterable<ExecEvent>;
  #stderr = "";
  exitCode = 0;
  hasTimedOut = false;

  constructor(events: AsyncIterable<ExecEvent>) {
    this.#events = events;
  }

  /** Whether kernel/ask.py is missing in the guest: Python exits with 2 then. */
  get isMissing(): boolean {
    return this.exitCode === 2;
  }

  get complaint(): string {
    return this.exitCode === 127
      ? "there is no python3 in the session"
      : `the kernel could not be asked: ${this.#stderr.slice(-500)} (exit code ${this.exitCode})`;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, void> {
    for await (const { type, data } of this.#events) {
      if (type === "stdout") yield data;
      else if (type === "stderr") this.#stderr = (this.#stderr + new TextDecoder().decode(data)).slice(-2000);
      else {
        this.exitCode = data.exit_code;
        this.hasTimedOut = data.timed_out;
      }
    }
  }
}

/** Splits a request into arguments, as JSON in ASCII, so that no character is split or depends on an encoding. */
function inPieces(request: Request): string[] {
  const text = JSON.stringify(request).replaceAll(
    /[\u007f-\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  if (text.length > REQUEST_CHARS) {
    const message = "code: is longer than 512 KiB; put data into files and read them";
    throw new VivariumError("payload_too_large", message);
  }
  const pieces: string[] = [];
  for (let at = 0; at < text.length; at += PIECE_CHARS) pieces.push(text.slice(at, at + PIECE_CHARS));
  return pieces;
}

function died({ reason, code, timedOut }: Extract<KernelEvent, { event: "died" }>): VivariumError {
  if (reason === "restarted") return lost("the context was restarted");
  if (timedOut) return lost("the code did not stop when its time was up, and its process was killed");
  const how = code < 0 ? `was killed by signal ${-code}` : `exited with ${code}`;
  return lost(`the process of the code ${how}${code === -9 ? ", perhaps for lack of memory" : ""}`);
}

function lost(what: string): VivariumError {
  return new VivariumError("kernel_died", `${what}; its variables are lost, the next run gets a new process`);
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof VivariumError && error.code === code;
}
