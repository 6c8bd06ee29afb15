/** The host's CPU, as `/proc/cpuinfo` shows it. */
import { readFileSync } from "node:fs";

export interface HostCpu {
  vendor: string;
  /** Model name, with what identifies the model where the name does not. */
  name: string;
  flags: ReadonlySet<string>;
}

/** Fields that identify a model. Flags are left out, because they change with the kernel, and so is the microcode. */
const FIELDS = ["vendor_id", "cpu family", "model", "model name"];

const readInfo = () => readFileSync("/proc/cpuinfo", "utf8");

/** Identifies the model of the host's CPU. */
export function readHostCpu(info = readInfo()): string {
  const values = fieldsOf(info);
  return FIELDS.map((field) => values.get(field) ?? "").join(" / ");
}

export function describeHostCpu(info = readInfo()): HostCpu {
  const values = fieldsOf(info);
  const [vendor = "", family = "", model = "", name = ""] = FIELDS.map((field) => values.get(field));
  return {
    vendor,
    name: `${name} (${vendor}, family ${family}, model ${model})`,
    flags: new Set(values.get("flags")?.split(" ")),
  };
}

/** Fields of the first processor. */
function fieldsOf(info: string): Map<string, string> {
  const [first = ""] = info.split("\n\n");
  return new Map(first.split("\n").map((line) => splitLine(line)));
}

function splitLine(line: string): [field: string, value: string] {
  const [field = "", ...value] = line.split(":");
  return [field.trim(), value.join(":").trim()];
}
