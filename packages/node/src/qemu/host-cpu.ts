import { readFileSync } from "node:fs";

/** Fields that identify a model. Flags are left out, because they change with the kernel, and so is the microcode. */
const FIELDS = ["vendor_id", "cpu family", "model", "model name"];

/** The model of the host's CPU, as `/proc/cpuinfo` names it. */
export function readHostCpu(info = readFileSync("/proc/cpuinfo", "utf8")): string {
  const [first = ""] = info.split("\n\n");
  const values = new Map(first.split("\n").map((line) => splitLine(line)));
  return FIELDS.map((field) => values.get(field) ?? "").join(" / ");
}

function splitLine(line: string): [field: string, value: string] {
  const [field = "", ...value] = line.split(":");
  return [field.trim(), value.join(":").trim()];
}
