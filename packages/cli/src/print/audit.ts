/** Renders entries of the audit log, and what a verification of it found. */
import type { AuditEntry, AuditVerdict } from "@vivarium/sdk";
import { noPaint, type Paint } from "./paint.ts";
import { plainText } from "./table.ts";

/** An entry as a line: `2027-01-01T10:00:00.000Z  key.create  ok  key_…  by key_…  name=ci`. */
export function renderEntry(entry: AuditEntry, paint: Paint = noPaint): string {
  const { at, action, outcome, code, actor, target, meta } = entry;
  const isBad = outcome === "denied" || outcome === "error";
  const facts = Object.entries(meta).map(([name, value]) => `${name}=${textOf(value)}`);
  const outcomeText = paint(isBad ? "red" : "green", code === undefined ? outcome : `${outcome}:${code}`);
  const rest = [target, `by ${actor.id}`, facts.join(" ")].filter(Boolean).map(plainText);
  return [at, plainText(action), outcomeText, ...rest].join("  ");
}

function textOf(value: unknown): string {
  if (typeof value === "string") return /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
  return Array.isArray(value) ? value.map(textOf).join(",") : JSON.stringify(value);
}

export function renderVerdict(verdict: AuditVerdict, paint: Paint = noPaint): string {
  const { ok, findings, more_findings: more, head, anchor, waiting, before_chain: before } = verdict;
  const where = ({ seq, entry_id: id }: AuditVerdict["findings"][number]) =>
    [id, seq === undefined ? undefined : `link ${seq}`].filter(Boolean).join(", ");
  return [
    ...findings.map((one) => `${paint("red", one.kind)}  ${where(one)}  ${one.message}`),
    ...(more > 0 ? [`and ${more} more`] : []),
    ok ? paint("green", "the audit log is whole") : paint("red", "the audit log was changed"),
    ...(head && anchor
      ? [`links ${anchor.seq + 1} to ${head.seq}, the newest of ${head.at}`, `head  ${head.seq}.${head.hash}`]
      : ["there is no chain yet"]),
    ...(waiting > 0 ? [`${waiting} entries of the last seconds are not in the chain yet`] : []),
    ...(before > 0 ? [`${before} entries are from versions without a chain`] : []),
  ].join("\n");
}
