/** `viv run`: runs a program in a virtual machine of its own and exits with its code. */
import type { Client, Language } from "@vivarium/sdk";
import {
  addEgressOptions,
  type EgressOptions,
  hasEgressOptions,
  toEgressFields,
} from "../args/egress-options.ts";
import { chooseLanguage, LANGUAGE_NAMES, programIn } from "../args/language.ts";
import { readText } from "../args/read-text.ts";
import { collectList, collectPair, parseDuration } from "../args/values.ts";
import { UsageError } from "../cli-error.ts";
import { formatSeconds } from "../print/time.ts";
import { ensureService } from "../service/ensure-service.ts";
import { withInterrupt } from "../service/interrupt.ts";
import { exitCodeOf, showStream, writeBothStreams } from "../service/show-stream.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

interface RunOptions extends EgressOptions {
  language?: string;
  deps?: string[];
  env?: Record<string, string>;
  size?: string;
  template?: string;
  volume?: string;
  sudo: boolean;
  timeout?: number;
  start: boolean;
  quiet?: boolean;
}

interface Source {
  /** The path as typed, or `-`. */
  file: string;
  language: Language;
  code: string;
}

export function runCommand(): Verb {
  const command = clientVerb("run", [
    "viv run examples/hello.py",
    "echo 'print(6*7)' | viv run --language python -",
    "viv run --egress deny untrusted.py",
    "viv run --deps is-odd --timeout 2m main.mjs",
  ])
    .summary("run a program in a virtual machine of its own")
    .description(
      `Run a program in a virtual machine of its own, which is destroyed afterwards, and exit with its code.
The language comes from the extension: .py python; .js .mjs .cjs node; .ts .tsx bun.
When nothing answers at a local URL, the service is started in the background first.
With --deps, output is shown at the end instead of as it comes.`,
    )
    .argument("<file>", "the program, or - for standard input")
    .option("--language <name>", LANGUAGE_NAMES.join(", "))
    .option("--deps <a,b>", "packages to install first (pip, npm or bun); repeatable", collectList)
    .option("--env <NAME=value>", "variable for the program; repeatable", collectPair)
    .option("--size <size>", "small, medium or large")
    .option("--template <name>", "what the machine starts from, NAME or NAME@VERSION (default: base)")
    .option("--volume <id>", "a volume, which the program has at /volume")
    .option("--no-sudo", "take passwordless sudo away from the program");
  return addEgressOptions(command)
    .option("--timeout <time>", "stop it after this long, at most 1h (default: 30s)", parseDuration)
    .option("--no-start", "do not start the service when none runs")
    .option("--quiet", "print nothing but the program's output")
    .option("--json", "wait for the end, then print the result as JSON")
    .does(runProgram);
}

async function runProgram(call: Call<RunOptions>, file: string): Promise<number> {
  const { config, terminal, options } = call;
  const language = chooseLanguage(file, options.language);
  const source = { file, language, code: await readText(file) };
  const isBuffered = options.json || (options.deps?.length ?? 0) > 0;
  if (isBuffered) refuseSessionOptions(options);
  if (options.start) await ensureService(call);
  const client = await call.connect();
  const startedAt = performance.now();
  const outcome = isBuffered
    ? await runBuffered(call, client, source)
    : await withInterrupt((signal) => runStreamed(call, client, source, signal));
  if (!options.quiet) {
    const totalMs = performance.now() - startedAt;
    const ran = formatSeconds(outcome.ranMs);
    terminal.note(
      `viv: ran in ${ran}, ${formatSeconds(totalMs)} with its machine; the service listens at ${config.url}`,
    );
  }
  return outcome.code;
}

/** Fails for options that --deps and --json do not support: the program could reach hosts that --egress denies. */
function refuseSessionOptions(options: RunOptions): void {
  const refuse = (what: string, hint: string) => {
    throw new UsageError(`${what} cannot be combined with --deps or --json`, hint);
  };
  if (options.env) {
    refuse("--env", "Set the variables inside the program, or use: viv create --env … and viv exec");
  }
  if (hasEgressOptions(options)) {
    refuse("--egress, --allow and --egress-cap", "Use: viv create --egress … and viv exec");
  }
}

async function runStreamed(
  { terminal, options }: Call<RunOptions>,
  client: Client,
  { file: source, language, code }: Source,
  signal: AbortSignal,
): Promise<{ code: number; ranMs: number }> {
  const { session_id } = await client.sessions.create(
    {
      ...machineFields(options),
      ...toEgressFields(options),
      env: options.env,
      destroy_on_completion: true,
    },
    { signal },
  );
  let completed = false;
  try {
    const { file, command } = programIn(language, source);
    await client.session(session_id).files.write(file, code, { signal });
    const request = { command, timeout_ms: options.timeout };
    const ending = await showStream(terminal, client.sessions.execStream(session_id, request, { signal }));
    completed = true;
    return { code: exitCodeOf(terminal, ending), ranMs: ending.duration_ms };
  } finally {
    // The service ends the session once a command has completed; in every other case it is ended here.
    if (!completed) await client.sessions.delete(session_id).catch(() => {});
  }
}

async function runBuffered(
  { terminal, options }: Call<RunOptions>,
  client: Client,
  { language, code }: Source,
): Promise<{ code: number; ranMs: number }> {
  const result = await client.run({
    ...machineFields(options),
    language,
    code,
    dependencies: options.deps,
    timeout_ms: options.timeout,
  });
  if (options.json) terminal.out(JSON.stringify(result));
  else {
    await writeBothStreams(terminal, result);
    if (result.truncated) terminal.note("viv: the output was cut at 4 MiB per stream");
  }
  if (result.phase === "install") terminal.note("viv: the dependencies could not be installed");
  return { code: exitCodeOf(terminal, result), ranMs: result.duration_ms };
}

function machineFields(options: RunOptions) {
  const { size, template, volume: volume_id, sudo } = options;
  return { size, template, volume_id, no_sudo: sudo ? undefined : true };
}
