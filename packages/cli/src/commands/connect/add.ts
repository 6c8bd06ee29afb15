/** `viv connect add` and `viv connect rotate`: add a Connection to a session, and replace one as a whole. */
import { type Connection, type Session, VivariumError } from "@vivarium/sdk";
import { type AllowRule, collectAllow, toAllow } from "../../args/allow-rules.ts";
import { parseSecretPlace, readSecretValue } from "../../args/secret-value.ts";
import type { SecretPlace } from "../../args/secrets.ts";
import { parseLongDuration } from "../../args/values.ts";
import { renderConnection } from "../../print/connection.ts";
import { withHint } from "../../print/explain-error.ts";
import { type Call, sessionVerb, type Verb } from "../verb.ts";

interface ConnectOptions {
  name: string;
  allow: AllowRule[];
  secret?: SecretPlace;
  header?: string;
  ttl?: number;
}

export function addCommand(): Verb {
  const verb = sessionVerb("add", [
    `viv connect add my-session https://api.example.com --name payments --allow "GET /v1/customers/*"`,
    `viv connect add my-session https://api.example.com --name payments --secret @payments.key --allow "GET,POST /v1/*" --ttl 1h`,
    `pass show search | viv connect add my-session https://search.example.com --name search --header X-Api-Key --allow "GET /query"`,
  ])
    .summary("add a credential to a session's requests to one origin")
    .description(
      `Bind a session to an https origin. The service adds the credential to the requests that --allow matches; the session
never has it. Without --secret, asks for it on a terminal, and else reads the standard input. The session must have been
created with a Connection (viv create --connect FILE).`,
    );
  return withRules(verb).does((call: Call<ConnectOptions>, reference: string, origin: string) =>
    send(call, { reference, origin, verb: "add" }),
  );
}

export function rotateCommand(): Verb {
  const verb = sessionVerb("rotate", [
    `viv connect rotate my-session https://api.example.com --name payments --secret @new.key --allow "GET /v1/customers/*"`,
  ])
    .summary("replace a Connection: credential, rules and time, as a whole")
    .description(
      `Replace the Connection of this name as a whole: credential, rules and time. The new credential is in use when the command
returns; answers that are open under the old one have ended. Without --secret, asks for the new one on a terminal, and else
reads the standard input.`,
    );
  return withRules(verb).does((call: Call<ConnectOptions>, reference: string, origin: string) =>
    send(call, { reference, origin, verb: "rotate" }),
  );
}

function withRules(verb: Verb): Verb {
  return verb
    .argument("<origin>", "https://HOST, the only place where the credential is sent")
    .requiredOption("--name <name>", "its name in the session: a-z, 0-9, dot, dash and underscore")
    .requiredOption(
      "--allow <rule>",
      'methods and paths that get the credential: "GET,POST /v1/* /v2/items"; repeatable',
      collectAllow,
    )
    .option("--secret <VAR>", "the credential, from the environment; or @FILE, - (stdin)", parseSecretPlace)
    .option(
      "--header <header>",
      "header that carries the bare credential (default: Authorization, as Bearer …)",
    )
    .option(
      "--ttl <time>",
      "how long it works, at most 24h (default: the session's lifetime, or 1h)",
      parseLongDuration,
    )
    .option("--json", "print the Connection as JSON");
}

interface Wanted {
  reference: string;
  origin: string;
  verb: "add" | "rotate";
}

async function send(call: Call<ConnectOptions>, { reference, origin, verb }: Wanted): Promise<void> {
  const { config, terminal, options } = call;
  const allow = toAllow(options.allow);
  const { session } = await call.find(reference);
  const secret = await readSecretValue(options.secret, {
    terminal,
    variable: config.variable,
    question: `Credential for ${origin}: `,
  });
  const { name, header, ttl } = options;
  const request = {
    origin,
    authentication:
      header === undefined
        ? ({ type: "bearer", secret } as const)
        : ({ type: "header", header_name: header, secret } as const),
    allow,
    ...(ttl !== undefined && { ttl_seconds: Math.max(1, Math.round(ttl / 1000)) }),
  };
  const made: Promise<Connection> =
    verb === "rotate"
      ? session.connections.replace(name, request)
      : session.connections.create({ name, ...request });
  const connection = await made.catch(async (error) => {
    if (!(error instanceof VivariumError)) throw error;
    const hint = await hintFor(error, session, { name, origin, verb });
    throw hint === undefined ? error : withHint(error, hint);
  });
  call.print(connection, renderConnection, (each) => each.name);
}

/** The remedy for a refusal, by the Connections that the session has. */
async function hintFor(
  { code, retryable }: VivariumError,
  { id, connections }: Session,
  { name, origin, verb }: Pick<Wanted, "origin" | "verb"> & { name: string },
): Promise<string | undefined> {
  if (code === "unavailable" && !retryable)
    return "Secrets need a key-encryption key on the service: docs/operate/secrets.md";
  if (code !== "conflict" && !(code === "not_found" && verb === "rotate")) return undefined;
  const list = await connections.list().catch(() => undefined);
  if (!list) return undefined;
  if (list.connections.length === 0 && code === "conflict")
    return "Make a session that has a Connection from its create on: viv create --connect FILE";
  const taken =
    list.connections.find((each) => each.name === name) ??
    list.connections.find((each) => each.origin === origin);
  if (code === "conflict" && taken?.state === "revoked")
    return "A revoked Connection keeps its name and origin, which is refused, until the session ends.";
  if (code === "conflict" && taken)
    return `To give it another secret, rules and time: viv connect rotate ${id} ${origin} --name ${taken.name}`;
  return `Which there are: viv connect ls ${id}`;
}
