/** `viv open`: exposes a port of a session and opens it in the browser. */
import { VivariumError } from "@vivarium/sdk";
import { parsePort } from "../args/values.ts";
import { CliError } from "../cli-error.ts";
import { openInBrowser } from "../service/open-in-browser.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

export function openCommand(): Verb {
  return sessionVerb("open", ["viv open 4x7k2m9q0a1b2c3d4e5f6 8000"])
    .summary("open a port of a session in the browser")
    .description(
      `Open a port of a session in the browser. An exposed port stays as it is; one that is not is exposed with a token
first. Where there is no screen, or nobody looks at the output, prints the URL instead.`,
    )
    .argument("<port>", "where the program listens", parsePort)
    .option("--login-url <url>", "the port's login URL, where it has one: it is dropped when left out")
    .option("--json", "print the preview as JSON, and open nothing")
    .does(openPort);
}

async function openPort(call: Call<{ loginUrl?: string }>, reference: string, port: number): Promise<void> {
  const { terminal, options } = call;
  const { browser } = call.config;
  const { id, session } = await call.find(reference);
  const { exposed, url } = await session.preview(port, { loginUrl: options.loginUrl }).catch(explain);
  if (options.json) return terminal.out(JSON.stringify(exposed));
  const canOpen = browser !== undefined && terminal.isInteractive;
  if (canOpen && (await openInBrowser(browser, exposed.preview_url))) terminal.note(`viv: opened ${url}`);
  else terminal.out(exposed.preview_url);
  if (exposed.result === "created")
    terminal.note(`viv: port ${port} is exposed from now on; to close it: viv unexpose ${id} ${port}`);
}

function explain(error: unknown): never {
  if (!(error instanceof VivariumError) || error.code !== "bearer_unknown") throw error;
  throw new CliError("the port wants a bearer token, which browsers do not send", {
    hint: "Reach it with curl -H 'Authorization: Bearer …', or expose it without: viv expose SESSION PORT",
    cause: error,
  });
}
