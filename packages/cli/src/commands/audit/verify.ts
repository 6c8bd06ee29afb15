/** `viv audit verify`: checks the audit log against its chain. */
import { InvalidArgumentError } from "commander";
import { EXIT } from "../../exit-codes.ts";
import { renderVerdict } from "../../print/audit.ts";
import { withInterrupt } from "../../service/interrupt.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

interface VerifyOptions {
  known?: { seq: number; hash: string };
}

/** Interval of the notes about the progress of a long verification. */
const PROGRESS_MS = 1_000;
const KNOWN = /^([0-9]+)\.([0-9a-f]{64})$/;

export function auditVerifyCommand(): Verb {
  return clientVerb("verify", [
    "viv audit verify",
    "viv audit verify --known $(cat /mnt/elsewhere/audit-head)",
  ])
    .summary("find entries that were changed, removed or put in")
    .description(
      `Check the whole log against its chain. Prints each entry that was changed, removed or put in, and how far the chain
reaches. Exits with 1 when anything was found. Keep the head that it prints elsewhere, and give it with --known later: then
also an older state of the database that was put back is found.`,
    )
    .option(
      "--known <head>",
      "a head that an earlier verification printed: the chain must have it",
      parseKnown,
    )
    .option("--json", 'print {"ok", "findings": […], "checked", "head", …}')
    .does(verifyAudit);
}

async function verifyAudit(call: Call<VerifyOptions>): Promise<number> {
  const { paint, terminal } = call;
  const { audit } = await call.connect();
  let notedAt = performance.now();
  const onProgress = ({ checked, total }: { checked: number; total: number }) => {
    if (performance.now() - notedAt < PROGRESS_MS) return;
    notedAt = performance.now();
    terminal.note(`viv: checked ${checked} of about ${total} links and entries`);
  };
  const { known } = call.options;
  const verdict = await withInterrupt((signal) => audit.verify({ known, onProgress, signal }));
  call.print(verdict, (found) => renderVerdict(found, paint));
  return verdict.ok ? EXIT.ok : EXIT.failed;
}

function parseKnown(text: string): { seq: number; hash: string } {
  const [, seq, hash] = KNOWN.exec(text) ?? [];
  if (seq === undefined || hash === undefined)
    throw new InvalidArgumentError("Expected a head as viv audit verify prints it: 8431.5f0c…");
  return { seq: Number(seq), hash };
}
