/** `viv template log`: prints the log of an import. */
import { showableLine } from "../../print/table.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function templateLogCommand(): Verb {
  return clientVerb("log", ["viv template log rust", "viv template log rust@2"])
    .summary("print the log of an import")
    .description("Print the last lines of the log of a template's newest import, or of that of one version.")
    .argument("<template>", "NAME, or NAME@VERSION for one version")
    .option("--json", 'print {"lines": [{at, text}, …]}')
    .does(printLog);
}

async function printLog(call: Call, name: string): Promise<void> {
  const log = await (await call.connect()).templates.log(name);
  call.printLines(
    log,
    log.lines.map(({ at, text }) => `${at}  ${showableLine(call.terminal, text)}`),
  );
}
