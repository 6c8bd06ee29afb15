/** `viv template import`: makes a template of a container image. */
import { pinned, renderTemplate } from "../../print/template.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";
import { untilOver } from "./until-over.ts";

interface ImportOptions {
  name: string;
  description?: string;
  wait: boolean;
}

export function templateImportCommand(): Verb {
  return clientVerb("import", [
    "viv template import --name rust rust:1.90 && viv create --template rust",
    "viv template import --name app ghcr.io/owner/app:2@sha256:…",
    "viv template import --name app --no-wait ghcr.io/owner/app:2; viv template log app",
  ])
    .summary("make a template of a container image")
    .description(
      `Make a template of a container image, and return when it is ready. Under a name that exists already this adds a version.
Private images are pulled with the credential of viv registry login. Prints NAME@VERSION.`,
    )
    .argument("<image>", "[HOST/]PATH[:TAG][@DIGEST], as for docker pull")
    .requiredOption("--name <name>", "name of the template: a-z, 0-9, dots and hyphens")
    .option("--description <text>", "what it is for")
    .option("--no-wait", "return once the import is queued")
    .option("--json", "print the template as JSON")
    .does(importTemplate);
}

async function importTemplate(call: Call<ImportOptions>, image: string): Promise<void> {
  const client = await call.connect();
  const { name, description, wait } = call.options;
  const queued = await client.templates.import({ name, from_image: image, description });
  const template = wait ? await untilOver(call, client, queued) : queued;
  call.print(template, renderTemplate, wait ? pinned : () => name);
}
