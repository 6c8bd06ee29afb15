/** `viv egress set`: replaces the egress policy of a session. */
import type { EgressPolicy } from "@vivarium/sdk";
import { Option } from "commander";
import { EGRESS_MODES } from "../../args/egress-options.ts";
import { readText } from "../../args/read-text.ts";
import { collectList } from "../../args/values.ts";
import { renderPolicy } from "../../print/egress.ts";
import { type Call, sessionVerb, type Verb } from "../verb.ts";

interface EgressSetOptions {
  mode: EgressPolicy["mode"];
  allow?: string[];
  allowFile?: string;
}

export function egressSetCommand(): Verb {
  return sessionVerb("set", [
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
    .does(setPolicy);
}

async function setPolicy(call: Call<EgressSetOptions>, reference: string): Promise<void> {
  const { mode, allow = [], allowFile } = call.options;
  const fromFile = allowFile === undefined ? [] : await readEntries(allowFile);
  const { egress } = (await call.find(reference)).session;
  call.print(await egress.set({ mode, allow: [...allow, ...fromFile] }), renderPolicy);
}

/** Reads policy entries from a file, one per line, without empty lines and comments. */
async function readEntries(file: string): Promise<string[]> {
  return (await readText(file))
    .split("\n")
    .map((line) => line.replace(/#.*/, "").trim())
    .filter((line) => line !== "");
}
