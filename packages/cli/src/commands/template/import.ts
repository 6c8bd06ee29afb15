/** `viv template import`: makes a template of a container image. */
import { sleep } from "@vivarium/kit/clock";
import type { Client, Template } from "@vivarium/sdk";
import { CliError } from "../../cli-error.ts";
import { pinned, renderBuild, renderTemplate } from "../../print/template.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

interface ImportOptions {
  name: string;
  description?: string;
  wait: boolean;
}

/** Interval at which the import is looked at. */
const LOOK_MS = 1_000;
const CLEAR_LINE = "\r\u001b[K";

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

/** Shows how far the import is, on a terminal in one line. */
async function untilOver(call: Call<ImportOptions>, client: Client, queued: Template): Promise<Template> {
  const { terminal } = call;
  const show = (text: string) =>
    terminal.isInteractive && !call.options.json
      ? terminal.write("stdout", Buffer.from(CLEAR_LINE + text.slice(0, terminal.size().columns - 1)))
      : Promise.resolve();
  let template = queued;
  try {
    while (template.status === "queued" || template.status === "building") {
      await show(stateOf(template));
      await sleep(LOOK_MS);
      template = await client.templates.get(queued.name);
    }
  } finally {
    await show("");
  }
  if (template.status === "ready") return template;
  throw new CliError(
    `the import of ${queued.name} failed: ${template.build_error ?? "it does not say why"}`,
    {
      hint: hintFor(template),
    },
  );
}

function stateOf({ status, queue_position: position, progress }: Template): string {
  if (status === "queued") return `waiting${position === undefined ? "" : `, place ${position}`}`;
  return progress ? renderBuild(progress) : "beginning";
}

function hintFor({ name, build_error: error = "" }: Template): string {
  if (error.startsWith("registry_auth:"))
    return "Give the service a credential: viv registry login HOST --username NAME";
  return `What was done until then: viv template log ${name}`;
}
