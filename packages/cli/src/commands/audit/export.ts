/** `viv audit export`: prints the audit log with its chain as lines of JSON. */
import { parseCount } from "../../args/values.ts";
import { withInterrupt } from "../../service/interrupt.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

const PROGRESS_MS = 2_000;

export function auditExportCommand(): Verb {
  return clientVerb("export", [
    "viv audit export >audit.jsonl",
    "viv audit export --after 8431 >>audit.jsonl",
  ])
    .summary("print the log with its chain as lines of JSON")
    .description(
      `Print the whole log as lines of JSON, oldest first: each link of the chain with its entry, and last the head. An
export that ends without a head is cut off, and exits with 1.`,
    )
    .option("--after <number>", "only links after the one with this number", parseCount)
    .option("--json", "the output is JSON without it as well")
    .does(exportAudit);
}

async function exportAudit(call: Call<{ after?: number }>): Promise<void> {
  const { terminal } = call;
  const { audit } = await call.connect();
  let lines = 0;
  let notedAt = performance.now();
  await withInterrupt(async (signal) => {
    for await (const line of audit.export({ after: call.options.after }, { signal })) {
      await terminal.write("stdout", Buffer.from(`${JSON.stringify(line)}\n`));
      lines += 1;
      if (terminal.isInteractive || performance.now() - notedAt < PROGRESS_MS) continue;
      notedAt = performance.now();
      terminal.note(`viv: ${lines} lines`);
    }
  });
}
