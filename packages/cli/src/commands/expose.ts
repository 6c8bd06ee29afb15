import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { parsePort } from "../args/values.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { renderExposed } from "../print/exposed.ts";
import { findSession } from "../sessions/find-session.ts";

interface ExposeOptions extends ConnectionOptions {
  public?: boolean;
  bearer?: boolean;
  loginUrl?: string;
  rotate?: boolean;
}

export function exposeCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("expose", [
    "viv expose 4x7k2m9q0a1b2c3d4e5f6 8000",
    "viv expose --public 4x7k2m9q0a1b2c3d4e5f6 8000",
    "curl $(viv expose 4x7k2m9q0a1b2c3d4e5f6 8000)",
  ])
    .summary("make a port of a session reachable from outside")
    .description(
      `Make a port of a session reachable under a URL, or change how. The program must listen on 0.0.0.0. Prints the URL.
What is not given becomes its default, also on a port that is exposed already; with the settings that it has, nothing
changes and the URL stays.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .argument("<port>", "where the program listens", parsePort)
    .option("--public", "let everybody in (default: who has the token in the URL)")
    .option("--bearer", "ask for a bearer token as well; it is told once, when it is made")
    .option("--login-url <url>", "where browsers that are not let in are sent")
    .option("--rotate", "make new tokens; the old URL is dead at once")
    .option("--json", "print the preview as JSON")
    .action((reference: string, port: number, options: ExposeOptions) =>
      run(exposePort(context, reference, port, options)),
    );
}

async function exposePort(
  { config, terminal }: Context,
  reference: string,
  port: number,
  options: ExposeOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const id = await findSession(client, reference);
  const exposed = await client.session(id).expose(port, {
    visibility: options.public ? "public" : "token",
    auth: options.bearer ? "bearer" : "none",
    loginUrl: options.loginUrl,
    rotate: options.rotate,
  });
  if (options.json) {
    terminal.out(JSON.stringify(exposed));
    return EXIT.ok;
  }
  terminal.out(terminal.isInteractive ? renderExposed(exposed) : exposed.preview_url);
  if (exposed.auth === "bearer") terminal.note(wordsAboutBearer(exposed.auth_token));
  return EXIT.ok;
}

function wordsAboutBearer(token: string | undefined): string {
  if (token === undefined) return "viv: the bearer token was told when it was made; for another: --rotate";
  return `viv: bearer token, told this once: ${token}`;
}
