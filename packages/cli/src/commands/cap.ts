import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { parseCap, parseOrgCap } from "../args/values.ts";
import { CliError } from "../cli-error.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { renderCap, renderOrgCap } from "../print/egress.ts";
import { findSession } from "../sessions/find-session.ts";

interface CapOptions extends ConnectionOptions {
  /** True: only shown. */
  org?: number | "default" | true;
}

export function capCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("cap", [
    "viv cap 4x7k2m9q0a1b2c3d4e5f6",
    "viv cap 4x7k2m9q0a1b2c3d4e5f6 10MiB",
    "viv cap 4x7k2m9q0a1b2c3d4e5f6 none",
    "viv cap --org",
    "viv cap --org 100GiB",
  ])
    .summary("show or set how much a session, or the organisation, may send in a day")
    .description(
      `Show how much a session may send in a day (UTC) and how much it has sent, or set the cap. It takes effect within
seconds. A session that has reached its cap stays live and sends nothing until 00:00 UTC or a higher cap. Wakes nothing.

With --org, the same of all sessions of the organisation together: over its cap they are paused, and none is created or
woken, until 00:00 UTC or a higher cap.`,
    )
    .argument("[session]", SESSION_ARGUMENT)
    .argument("[bytes]", "the cap: 10MiB, 1.5GiB, 500MB, bytes, or none", parseCap)
    .option(
      "--org [bytes]",
      "the organisation's cap, instead of a session's; default: the operator's",
      parseOrgCap,
    )
    .option("--json", "print the cap as JSON")
    .action((reference: string | undefined, bytes: number | undefined, options: CapOptions) =>
      run(showEither(context, reference, bytes, options)),
    );
}

async function showEither(
  context: Context,
  reference: string | undefined,
  bytes: number | undefined,
  options: CapOptions,
): Promise<number> {
  if ((reference === undefined) === (options.org === undefined)) {
    throw new CliError("give either a session or --org", { exitCode: EXIT.usage });
  }
  return reference === undefined
    ? await showOrgCap(context, options)
    : await showCap(context, reference, bytes, options);
}

async function showOrgCap({ config, terminal }: Context, options: CapOptions): Promise<number> {
  const { cap } = (await connect(withOptions(config, options))).org;
  const { org } = options;
  const result =
    typeof org === "boolean" || org === undefined
      ? await cap.get()
      : await cap.set(org === "default" ? null : org);
  terminal.out(options.json ? JSON.stringify(result) : renderOrgCap(result));
  return EXIT.ok;
}

async function showCap(
  { config, terminal }: Context,
  reference: string,
  bytes: number | undefined,
  options: ConnectionOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const { cap } = client.session(await findSession(client, reference));
  const result = bytes === undefined ? await cap.get() : await cap.set(bytes);
  terminal.out(options.json ? JSON.stringify(result) : renderCap(result));
  return EXIT.ok;
}
