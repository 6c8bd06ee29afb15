import type { SessionCreate } from "@vivarium/sdk";
import { type Command, Option } from "commander";
import { UsageError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import { collectFile, readConnectionFiles } from "./connection-file.ts";
import { collectSecret, isInput, readSecrets, type SecretSource } from "./secrets.ts";
import { collectPair, parseDuration, parsePausedTtl } from "./values.ts";

/** Options of a new session, whether it starts from a template or from a checkpoint. */
export interface SessionOptions {
  name?: string;
  externalId?: string;
  env?: Record<string, string>;
  secret?: SecretSource[];
  connect?: string[];
  label?: Record<string, string>;
  idleTimeout?: number;
  maxLifetime?: number;
  pausedTtl?: number;
  onDetach?: (typeof ON_DETACH)[number];
}

/** Policies for a session when the last client of its terminals has left. */
const ON_DETACH = ["pause", "keep_live", "destroy"] as const;

export function addSessionOptions<Verb extends Command>(command: Verb): Verb {
  return command
    .option("--name <name>", "a name, unique among sessions that have not ended")
    .option("--external-id <id>", "your own index key")
    .option("--env <NAME=value>", "variable for every process; repeatable", collectPair)
    .option(
      "--secret <NAME>",
      "secret variable, from the environment; or NAME=@FILE, NAME=- (stdin); repeatable",
      collectSecret,
    )
    .option(
      "--connect <file>",
      "Connections as JSON, one or a list, each secret a text, {env: VAR} or {file: PATH}; repeatable",
      collectFile,
    )
    .option("--label <key=value>", "label; repeatable", collectPair)
    .option("--idle-timeout <time>", "pause after this long without activity, at most 1h", parseDuration)
    .option("--max-lifetime <time>", "pause for good after this long, at most 24h", parseDuration)
    .option("--paused-ttl <time>", "end once paused this long, or never (default: 30d)", parsePausedTtl)
    .addOption(
      new Option(
        "--on-detach <policy>",
        "when the last client of its terminals has left (default: pause)",
      ).choices(ON_DETACH),
    );
}

export async function toSessionFields(options: SessionOptions, { variable }: Pick<CliConfig, "variable">) {
  const inputs = [
    ...(options.secret ?? []).filter(({ from }) => isInput(from)),
    ...(options.connect ?? []).filter((file) => file === "-"),
  ];
  if (inputs.length > 1) throw new UsageError("only one of --secret and --connect can be the standard input");
  return {
    name: options.name,
    external_id: options.externalId,
    env: options.env,
    secrets: await readSecrets(options.secret, variable),
    connections: await readConnectionFiles(options.connect, variable),
    labels: options.label,
    idle_timeout_ms: options.idleTimeout,
    max_lifetime_ms: options.maxLifetime,
    paused_ttl_ms: options.pausedTtl,
    on_pty_detach: options.onDetach,
  } satisfies SessionCreate;
}
