/** Renders named processes as a table, and one process as fields. */
import type { ProcessInfo } from "@vivarium/sdk";
import { noPaint, type Paint } from "./paint.ts";
import { renderFields, renderTable, withoutEmptyColumns } from "./table.ts";
import { formatAge } from "./time.ts";

const HEADINGS = ["NAME", "STATE", "PID", "EXIT", "AGE", "COMMAND", "KEEPS ALIVE"];
const STATE_STYLES = { running: "green", exited: "dim" } as const;

export function renderProcesses(processes: ProcessInfo[], now: Date, paint: Paint = noPaint): string {
  if (processes.length === 0)
    return "No named processes. Start one with: viv start ID --name NAME -- COMMAND";
  const rows = processes.map((each) => [
    each.name,
    each.state,
    each.pid === undefined ? "" : String(each.pid),
    each.exit_code === undefined ? "" : String(each.exit_code),
    formatAge(now.getTime() - Date.parse(each.started_at)),
    each.command.join(" "),
    each.keep_alive ? "yes" : "",
  ]);
  const columns = withoutEmptyColumns(HEADINGS, rows, HEADINGS.indexOf("PID"));
  return renderTable(...columns, (padded, { row, heading }) => {
    const found = processes[row - 1];
    if (found === undefined) return paint("dim", padded);
    return heading === "STATE" ? paint(STATE_STYLES[found.state], padded) : padded;
  });
}

export function renderProcess(info: ProcessInfo): string {
  return renderFields([
    ["name", info.name],
    ["state", info.state],
    ["pid", info.pid === undefined ? undefined : String(info.pid)],
    ["exit code", info.exit_code === undefined ? undefined : String(info.exit_code)],
    ["command", info.command.join(" ")],
    ["keep alive", info.keep_alive ? "yes" : "no"],
    ["started", info.started_at],
    ["ended", info.ended_at],
  ]);
}
