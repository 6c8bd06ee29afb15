import type { Command } from "commander";
import { clientCommand, SESSION_ARGUMENT, type TimedOptions } from "../../args/shared-options.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { EXIT } from "../../exit-codes.ts";
import { renderTemplate } from "../../print/template.ts";
import { noteTiming } from "../../print/timing.ts";
import { findSession } from "../../sessions/find-session.ts";

interface TemplateSaveOptions extends TimedOptions {
  description?: string;
}

export function templateSaveCommand(
  run: (code: Promise<number>) => Promise<void>,
  context: Context,
): Command {
  return clientCommand("save", [
    "viv template save 4x7k2m9q0a1b2c3d4e5f6 with-tools && viv create --template with-tools",
  ])
    .summary("save a session as a template")
    .description(
      `Save a session as a template of your own, with its memory and processes. It goes on as it was. Under a name that
exists already this adds a version. Prints NAME@VERSION.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .argument("<name>", "name of the template: a-z, 0-9, dots and hyphens")
    .option("--description <text>", "what it is for")
    .option("--timing", "say how long each stage took")
    .option("--json", "print the template as JSON")
    .action((reference: string, name: string, options: TemplateSaveOptions) =>
      run(saveTemplate(context, reference, name, options)),
    );
}

async function saveTemplate(
  { config, terminal }: Context,
  reference: string,
  name: string,
  options: TemplateSaveOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const id = await findSession(client, reference);
  const { description, timing } = options;
  const template = await client.templates.save(id, { name, description }, { timing });
  if (options.json) terminal.out(JSON.stringify(template));
  else terminal.out(terminal.isInteractive ? renderTemplate(template) : pinned(template));
  noteTiming(terminal, options, template);
  return EXIT.ok;
}

function pinned({ name, version }: { name: string; version?: string }): string {
  return version === undefined ? name : `${name}@${version}`;
}
