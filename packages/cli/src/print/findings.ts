import type { Finding } from "../doctor/finding.ts";

const MARKS = { ok: "ok  ", warn: "WARN", fail: "FAIL" } as const;

/** Renders the findings of `viv doctor`: one line per check, and below it the consequence and the remedy. */
export function renderFindings(findings: Finding[]): string {
  const width = Math.max(...findings.map(({ name }) => name.length));
  const indent = " ".repeat(width + 7);
  const lines = findings.flatMap(({ status, name, found, cost, remedy }) => [
    `${MARKS[status]} ${name.padEnd(width)}  ${found}`,
    ...(cost === undefined ? [] : [`${indent}costs: ${cost}`]),
    ...(remedy === undefined ? [] : [`${indent}to do: ${remedy}`]),
  ]);
  return [...lines, "", summarize(findings)].join("\n");
}

function summarize(findings: Finding[]): string {
  const count = (status: Finding["status"]) => findings.filter((finding) => finding.status === status).length;
  if (count("fail") > 0)
    return `Sessions cannot run here yet: ${count("fail")} of ${findings.length} checks failed.`;
  if (count("warn") > 0)
    return `Sessions run here; ${count("warn")} of ${findings.length} checks have a cost.`;
  return "Everything is as it should be.";
}
