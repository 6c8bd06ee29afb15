/** `viv template ls`: lists templates. */
import { renderTemplates } from "../../print/template.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function templateLsCommand(): Verb {
  return clientVerb("ls", ["viv template ls"])
    .summary("list templates")
    .description("List templates: the official ones, then your own.")
    .option("--json", 'print {"templates": [template, …]}')
    .does(listTemplates);
}

async function listTemplates(call: Call): Promise<void> {
  const list = await (await call.connect()).templates.list();
  call.print(list, ({ templates }) => renderTemplates(templates, new Date(), call.paint));
}
