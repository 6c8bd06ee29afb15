import type { SessionCreate } from "@vivarium/sdk";
import type { Command } from "commander";
import { clientCommand, type TimedOptions } from "../args/shared-options.ts";
import { collectPair, parseDuration, parsePausedTtl } from "../args/values.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { showSession } from "../print/show-session.ts";

interface CreateOptions extends TimedOptions {
  size?: string;
  template?: string;
  fromCheckpoint?: string;
  name?: string;
  externalId?: string;
  env?: Record<string, string>;
  label?: Record<string, string>;
  sudo: boolean;
  idleTimeout?: number;
  maxLifetime?: number;
  pausedTtl?: number;
  wait?: boolean;
}

export function createCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("create", [
    "viv create",
    "viv create --size medium --env GREETING=hello --wait",
    "viv create --idle-timeout 10m --paused-ttl 7d",
    "viv create --from-checkpoint chk_4x7k2m9q0a1b2c3d4e5f6",
    "id=$(viv create) && viv exec $id -- uname -r",
  ])
    .summary("create a session")
    .description(
      "Create a session: a virtual machine that keeps its state until it is removed. Prints its id.",
    )
    .option("--size <size>", "small, medium or large")
    .option("--template <name>", "what it starts from, NAME or NAME@VERSION (default: base)")
    .option("--from-checkpoint <id>", "start from a checkpoint; size and template are then settled")
    .option("--name <name>", "a name, unique among sessions that have not ended")
    .option("--external-id <id>", "your own index key")
    .option("--env <NAME=value>", "variable for every process; repeatable", collectPair)
    .option("--label <key=value>", "label; repeatable", collectPair)
    .option("--no-sudo", "take passwordless sudo away from the default user")
    .option("--idle-timeout <time>", "pause after this long without activity, at most 1h", parseDuration)
    .option("--max-lifetime <time>", "end of its life at the latest, at most 24h", parseDuration)
    .option("--paused-ttl <time>", "end once paused this long, or never (default: 30d)", parsePausedTtl)
    .option("--wait", "return only when it is live")
    .option("--timing", "wait until it is live, then say how long each stage took")
    .option("--json", "print the record as JSON")
    .action((options: CreateOptions) => run(createSession(context, options)));
}

async function createSession(context: Context, options: CreateOptions): Promise<number> {
  const client = await connect(withOptions(context.config, options));
  const { timing, wait } = options;
  const created = await client.sessions.create(toRequest(options), { timing });
  // A create answers before its machine is there, so its timings are only known afterwards.
  const record =
    wait || timing ? await client.sessions.waitUntilLive(created.session_id, { timing }) : created;
  showSession(context, record, options);
  return EXIT.ok;
}

function toRequest(options: CreateOptions): SessionCreate {
  return {
    size: options.size,
    template: options.template,
    from_checkpoint: options.fromCheckpoint,
    name: options.name,
    external_id: options.externalId,
    env: options.env,
    labels: options.label,
    no_sudo: options.sudo ? undefined : true,
    idle_timeout_ms: options.idleTimeout,
    max_lifetime_ms: options.maxLifetime,
    paused_ttl_ms: options.pausedTtl,
  };
}
