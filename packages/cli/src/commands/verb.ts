/** Base of all verbs: declares options and help to the parser, and runs one function per call. */
import type { Client, Session, SessionRecord } from "@vivarium/sdk";
import { Command } from "commander";
import type { CliConfig } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { type Paint, paintFor } from "../print/paint.ts";
import { renderSession } from "../print/session.ts";
import { noteTiming, type Timing } from "../print/timing.ts";
import { findSession } from "../sessions/find-session.ts";
import type { Terminal } from "../terminal.ts";

/** Help text of an argument that names a session. */
export const SESSION_ARGUMENT = "id or name of the session, or the beginning of its id";

/** Options that many verbs have. */
interface CommonOptions {
  json?: boolean;
  timing?: boolean;
}

/** The function that does the work of a verb: `args` are the declared arguments; no exit code means success. */
type Act<Options, Args extends unknown[]> = (
  call: Call<Options>,
  ...args: Args
) => Promise<number> | Promise<void>;

export class Verb extends Command {
  /** Runs the verb for the command line that the parser has read; returns the exit code. */
  run: (context: Context) => Promise<number> = async () => EXIT.ok;

  constructor(name: string, examples: string[]) {
    super(name);
    this.addHelpText("after", `\nExamples:\n${examples.map((example) => `  $ ${example}`).join("\n")}`);
  }

  does<Options, Args extends unknown[]>(act: Act<Options, Args>): this {
    this.run = async (context) => {
      const call = new Call<Options>(context, this.opts());
      return (await act(call, ...(this.processedArgs as Args))) ?? EXIT.ok;
    };
    return this;
  }
}

/** A verb that connects to the service. */
export function clientVerb(name: string, examples: string[]): Verb {
  return new Verb(name, examples)
    .option("--url <url>", "where the service listens (default: $VIV_URL or http://127.0.0.1:7400)")
    .option("--data-dir <dir>", "data directory of the local service, for its API key");
}

/** A verb whose first argument is the session that it works on. */
export function sessionVerb(name: string, examples: string[]): Verb {
  return clientVerb(name, examples).argument("<session>", SESSION_ARGUMENT);
}

/** One call of a verb. `config` already includes the options of the call. */
export class Call<Options = unknown> implements Context {
  readonly config: CliConfig;
  readonly terminal: Terminal;
  readonly options: Options & CommonOptions;

  constructor({ config, terminal }: Context, options: Options & CommonOptions) {
    this.config = config;
    this.terminal = terminal;
    this.options = options;
  }

  get paint(): Paint {
    return paintFor(this);
  }

  connect(): Promise<Client> {
    return connect(this.config);
  }

  /** Resolves a reference. `orEnded`: ended sessions count as well, for a verb that only reads records. */
  async find(
    reference: string,
    how: { orEnded?: boolean } = {},
  ): Promise<{ client: Client; id: string; session: Session }> {
    const client = await this.connect();
    const id = await findSession(client, reference, how);
    return { client, id, session: client.session(id) };
  }

  /** Prints a result: as JSON with --json, else with `render` on a terminal and with `word` in a pipe. */
  print<Result>(
    result: Result,
    render: (result: Result) => string,
    word: (result: Result) => string = render,
  ): void {
    const show = this.options.json ? JSON.stringify : this.terminal.isInteractive ? render : word;
    this.terminal.out(show(result));
  }

  printSession(record: Omit<SessionRecord, "timing"> & { timing?: Timing }): void {
    const render = () => renderSession(record, this.paint);
    this.print(record, render, () => record.session_id);
    noteTiming(this, record);
  }

  /** Prints a result: as JSON with --json, else as `lines`. */
  printLines(result: unknown, lines: Iterable<string>): void {
    if (this.options.json) this.terminal.out(JSON.stringify(result));
    else for (const line of lines) this.terminal.out(line);
  }
}
