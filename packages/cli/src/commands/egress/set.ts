import type { EgressPolicy } from "@vivarium/sdk";
import { type Command, Option } from "commander";
import { EGRESS_MODES } from "../../args/egress-options.ts";
import { readText } from "../../args/read-text.ts";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../../args/shared-options.ts";
import { collectList } from "../../args/values.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { EXIT } from "../../exit-codes.ts";
import { renderPolicy } from "../../print/egress.ts";
import { findSession } from "../../sessions/find-session.ts";

interface EgressSetOptions extends ConnectionOptions {
  mode: EgressPolicy["mode"];
  allow?: string[];
  allowFile?: string;
}

export function egressSetCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("set", [
    "viv egress set --mode deny --allow pypi.org,files.pythonhosted.org 4x7k2m9q0a1b2c3d4e5f6",
    "viv egress set --mode deny --allow '*.example.com' --allow 8.8.4.4:22 4x7k2m9q0a1b2c3d4e5f6",
    "viv egress set --mode deny --allow-file hosts.txt 4x7k2m9q0a1b2c3d4e5f6",
    "viv egress set --mode allow 4x7k2m9q0a1b2c3d4e5f6",
  ])
    .summary("replace what a session may reach")
    .description(
      `Replace the whole egress policy of a session. It is in force when this returns: connections that it does not allow
are cut, the others live on. In mode deny only the given entries are reached; without any, nothing is, not even DNS.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .addOption(
      new Option("--mode <mode>", "allow: the whole internet; deny: only the given entries")
        .choices(EGRESS_MODES)
        .makeOptionMandatory(),
    )
    .option(
      "--allow <a,b>",
      "entries: host, *.host or IPv4, each with or without :port; repeatable",
      collectList,
    )
    .option("--allow-file <file>", "more entries, one a line, # starts a comment; - for standard input")
    .option("--json", 'print the policy as JSON: {"session_id", "mode", "allow": [entry, …]}')
    .action((reference: string, options: EgressSetOptions) => run(setPolicy(context, reference, options)));
}

async function setPolicy(
  { config, terminal }: Context,
  reference: string,
  options: EgressSetOptions,
): Promise<number> {
  const fromFile = options.allowFile === undefined ? [] : await readEntries(options.allowFile);
  const client = await connect(withOptions(config, options));
  const id = await findSession(client, reference);
  const allow = [...(options.allow ?? []), ...fromFile];
  const policy = await client.session(id).egress.set({ mode: options.mode, allow });
  terminal.out(options.json ? JSON.stringify(policy) : renderPolicy(policy));
  return EXIT.ok;
}

/** Entries of a policy from a file, one a line; empty lines and comments are skipped. */
async function readEntries(file: string): Promise<string[]> {
  return (await readText(file))
    .split("\n")
    .map((line) => line.replace(/#.*/, "").trim())
    .filter((line) => line !== "");
}
