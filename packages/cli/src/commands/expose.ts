/** `viv expose`: makes a port of a session reachable from outside. */
import { parsePort } from "../args/values.ts";
import { renderExposed } from "../print/exposed.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

interface ExposeOptions {
  public?: boolean;
  bearer?: boolean;
  loginUrl?: string;
  rotate?: boolean;
}

export function exposeCommand(): Verb {
  return sessionVerb("expose", [
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
    .argument("<port>", "where the program listens", parsePort)
    .option("--public", "let everybody in (default: who has the token in the URL)")
    .option("--bearer", "ask for a bearer token as well; it is told once, when it is made")
    .option("--login-url <url>", "where browsers that are not let in are sent")
    .option("--rotate", "make new tokens; the old URL is dead at once")
    .option("--json", "print the preview as JSON")
    .does(exposePort);
}

async function exposePort(call: Call<ExposeOptions>, reference: string, port: number): Promise<void> {
  const { session } = await call.find(reference);
  const { options } = call;
  const exposed = await session.expose(port, {
    visibility: options.public ? "public" : "token",
    auth: options.bearer ? "bearer" : "none",
    loginUrl: options.loginUrl,
    rotate: options.rotate,
  });
  call.print(exposed, renderExposed, ({ preview_url }) => preview_url);
  if (exposed.auth !== "bearer" || options.json) return;
  const token = exposed.auth_token;
  call.terminal.note(
    token === undefined
      ? "viv: the bearer token was told when it was made; for another: --rotate"
      : `viv: bearer token, told this once: ${token}`,
  );
}
