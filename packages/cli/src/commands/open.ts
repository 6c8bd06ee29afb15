import { type Exposed, VivariumError } from "@vivarium/sdk";
import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { parsePort } from "../args/values.ts";
import { CliError } from "../cli-error.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { openInBrowser } from "../service/open-in-browser.ts";
import { findSession } from "../sessions/find-session.ts";

interface OpenOptions extends ConnectionOptions {
  loginUrl?: string;
}

export function openCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("open", ["viv open 4x7k2m9q0a1b2c3d4e5f6 8000"])
    .summary("open a port of a session in the browser")
    .description(
      `Open a port of a session in the browser. An exposed port stays as it is; one that is not is exposed with a token
first. Where there is no screen, or nobody looks at the output, prints the URL instead.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .argument("<port>", "where the program listens", parsePort)
    .option("--login-url <url>", "the port's login URL, where it has one: it is dropped when left out")
    .option("--json", "print the preview as JSON, and open nothing")
    .action((reference: string, port: number, options: OpenOptions) =>
      run(openPort(context, reference, port, options)),
    );
}

async function openPort(
  { config, terminal }: Context,
  reference: string,
  port: number,
  options: OpenOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const id = await findSession(client, reference);
  const { exposed, url } = await client
    .session(id)
    .preview(port, { loginUrl: options.loginUrl })
    .catch(explain);
  if (options.json) terminal.out(JSON.stringify(exposed));
  else if (await isOpened(exposed)) terminal.note(`viv: opened ${url}`);
  else terminal.out(exposed.preview_url);
  if (exposed.result === "created" && !options.json)
    terminal.note(`viv: port ${port} is exposed from now on; to close it: viv unexpose ${id} ${port}`);
  return EXIT.ok;

  async function isOpened({ preview_url }: Exposed): Promise<boolean> {
    const { browser } = config;
    return browser !== undefined && terminal.isInteractive && (await openInBrowser(browser, preview_url));
  }
}

function explain(error: unknown): never {
  if (!(error instanceof VivariumError) || error.code !== "bearer_unknown") throw error;
  throw new CliError("the port wants a bearer token, which browsers do not send", {
    hint: "Reach it with curl -H 'Authorization: Bearer …', or expose it without: viv expose SESSION PORT",
    cause: error,
  });
}
