import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { parseCap } from "../args/values.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { renderCap } from "../print/egress.ts";

export function capCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("cap", [
    "viv cap 4x7k2m9q0a1b2c3d4e5f6",
    "viv cap 4x7k2m9q0a1b2c3d4e5f6 10MiB",
    "viv cap 4x7k2m9q0a1b2c3d4e5f6 none",
  ])
    .summary("show or set how much a session may send in a day")
    .description(
      `Show how much a session may send in a day (UTC) and how much it has sent, or set the cap. It takes effect within
seconds. A session that has reached its cap stays live and sends nothing until 00:00 UTC or a higher cap. Wakes nothing.`,
    )
    .argument("<session>", "id of the session")
    .argument("[bytes]", "the cap: 10MiB, 1.5GiB, 500MB, bytes, or none", parseCap)
    .option("--json", "print the cap as JSON")
    .action((id: string, bytes: number | undefined, options: ConnectionOptions) =>
      run(showCap(context, id, bytes, options)),
    );
}

async function showCap(
  { config, terminal }: Context,
  id: string,
  bytes: number | undefined,
  options: ConnectionOptions,
): Promise<number> {
  const { cap } = (await connect(withOptions(config, options))).session(id);
  const told = bytes === undefined ? await cap.get() : await cap.set(bytes);
  terminal.out(options.json ? JSON.stringify(told) : renderCap(told));
  return EXIT.ok;
}
