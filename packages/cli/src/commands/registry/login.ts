/** `viv registry login`: stores a credential for a registry. */
import { type RegistryCredential, VivariumError } from "@vivarium/sdk";
import { parseSecretPlace, readSecretValue } from "../../args/secret-value.ts";
import type { SecretPlace } from "../../args/secrets.ts";
import { withHint } from "../../print/explain-error.ts";
import { renderCredential } from "../../print/registry.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

interface LoginOptions {
  username: string;
  secret?: SecretPlace;
  name?: string;
  replace?: boolean;
}

export function registryLoginCommand(): Verb {
  return clientVerb("login", [
    "viv registry login ghcr.io --username octocat",
    "viv registry login ghcr.io --username octocat --secret @ghcr.token",
    "viv registry login europe-west1-docker.pkg.dev --username _json_key --secret @key.json",
    "pass show hub | viv registry login docker.io --username me --name hub --replace",
  ])
    .summary("store a credential for a registry")
    .description(
      `Store a credential for a registry of container images. The service keeps it sealed, sends it to this registry alone, and
shows it to nobody. Without --secret, asks for it on a terminal, and else reads the standard input. It is not tried: an
import that it does not open says so.`,
    )
    .argument("<host>", "HOST or HOST:PORT of the registry; docker.io for Docker Hub")
    .requiredOption("--username <name>", "the user name at the registry")
    .option(
      "--secret <VAR>",
      "the password or token, from the environment; or @FILE, - (stdin)",
      parseSecretPlace,
    )
    .option("--name <name>", "what to call the credential (default: the host)")
    .option("--replace", "delete the credential of this name first, if there is one")
    .option("--json", "print the credential as JSON")
    .does(logIn);
}

async function logIn(call: Call<LoginOptions>, host: string): Promise<void> {
  const { config, terminal, options } = call;
  const { registries } = await call.connect();
  const secret = await readSecretValue(options.secret, {
    terminal,
    variable: config.variable,
    question: `Password or token of ${options.username} at ${host}: `,
  });
  // Names have no colon.
  const { username, name = host.toLowerCase().replace(":", "-") } = options;
  const create = () => registries.create({ name, registry_host: host, username, secret });
  const replace = async (error: unknown): Promise<RegistryCredential> => {
    if (!options.replace || !(error instanceof VivariumError) || error.code !== "conflict") throw error;
    await registries.delete(name);
    return await create();
  };
  const made = await create()
    .catch(replace)
    .catch((error: unknown) => {
      const hint = hintFor(error, name);
      throw hint === undefined || !(error instanceof VivariumError) ? error : withHint(error, hint);
    });
  call.print(made, renderCredential, (credential) => credential.name);
}

function hintFor(error: unknown, name: string): string | undefined {
  if (!(error instanceof VivariumError)) return undefined;
  if (error.code === "unavailable" && !error.retryable)
    return "Secrets need a key-encryption key on the service: docs/operate/secrets.md";
  return error.code === "conflict" && error.message.startsWith("name:")
    ? `To put this one in its place: --name ${name} --replace`
    : undefined;
}
