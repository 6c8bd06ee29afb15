import type { SessionCreate } from "@vivarium/sdk";
import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { collectPair, parseDuration } from "../args/values.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { renderSession } from "../print/session.ts";

interface CreateOptions extends ConnectionOptions {
  size?: string;
  template?: string;
  name?: string;
  externalId?: string;
  env?: Record<string, string>;
  label?: Record<string, string>;
  sudo: boolean;
  idleTimeout?: number;
  maxLifetime?: number;
  wait?: boolean;
}

export function createCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("create", [
    "viv create",
    "viv create --size medium --env GREETING=hello --wait",
    "id=$(viv create) && viv exec $id -- uname -r",
  ])
    .summary("create a session")
    .description(
      "Create a session: a virtual machine that keeps its state until it is removed. Prints its id.",
    )
    .option("--size <size>", "small, medium or large")
    .option("--template <name>", "what it starts from, NAME or NAME@VERSION (default: base)")
    .option("--name <name>", "a name, unique among sessions that have not ended")
    .option("--external-id <id>", "your own index key")
    .option("--env <NAME=value>", "variable for every process; repeatable", collectPair)
    .option("--label <key=value>", "label; repeatable", collectPair)
    .option("--no-sudo", "take passwordless sudo away from the default user")
    .option("--idle-timeout <time>", "pause after this long without activity, at most 1h", parseDuration)
    .option("--max-lifetime <time>", "end of its life at the latest, at most 24h", parseDuration)
    .option("--wait", "return only when it is live")
    .option("--json", "print the record as JSON")
    .action((options: CreateOptions) => run(createSession(context, options)));
}

async function createSession({ config, terminal }: Context, options: CreateOptions): Promise<number> {
  const client = await connect(withOptions(config, options));
  const created = await client.sessions.create(toRequest(options));
  const record = options.wait ? await client.sessions.waitUntilLive(created.session_id) : created;
  if (options.json) terminal.out(JSON.stringify(record));
  else terminal.out(terminal.isInteractive ? renderSession(record) : record.session_id);
  return EXIT.ok;
}

function toRequest(options: CreateOptions): SessionCreate {
  return {
    size: options.size,
    template: options.template,
    name: options.name,
    external_id: options.externalId,
    env: options.env,
    labels: options.label,
    no_sudo: options.sudo ? undefined : true,
    idle_timeout_ms: options.idleTimeout,
    max_lifetime_ms: options.maxLifetime,
  };
}
