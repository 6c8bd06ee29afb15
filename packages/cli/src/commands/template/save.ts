/** `viv template save`: saves a session as a template. */
import { pinned, renderTemplate } from "../../print/template.ts";
import { noteTiming } from "../../print/timing.ts";
import { type Call, sessionVerb, type Verb } from "../verb.ts";

export function templateSaveCommand(): Verb {
  return sessionVerb("save", [
    "viv template save 4x7k2m9q0a1b2c3d4e5f6 with-tools && viv create --template with-tools",
  ])
    .summary("save a session as a template")
    .description(
      `Save a session as a template of your own, with its memory and processes. It goes on as it was. Of a session
with secrets or Connections the disk alone is saved, and sessions boot from it. Under a name that exists already this adds a
version. Prints NAME@VERSION.`,
    )
    .argument("<name>", "name of the template: a-z, 0-9, dots and hyphens")
    .option("--description <text>", "what it is for")
    .option("--timing", "say how long each stage took")
    .option("--json", "print the template as JSON")
    .does(saveTemplate);
}

async function saveTemplate(
  call: Call<{ description?: string }>,
  reference: string,
  name: string,
): Promise<void> {
  const { client, id } = await call.find(reference);
  const { description, timing } = call.options;
  const template = await client.templates.save(id, { name, description }, { timing });
  call.print(template, renderTemplate, pinned);
  noteTiming(call, template);
}
