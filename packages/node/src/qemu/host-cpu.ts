/** The host's CPU, as `/proc/cpuinfo` shows it. */
import { readFileSync } from "node:fs";

export interface HostCpu {
  vendor: string;
  /** Model name, with what identifies the model where the name does not. */
  name: string;
  flags: ReadonlySet<string>;
}

/**
 * Features that guests of the host's own CPU see, as `/proc/cpuinfo` names them, one a line. Set-up reads the list too
 * (scripts/setup/fingerprint.sh). Other flags are the kernel's own and change with it, or KVM has them on every host.
 */
const GUEST_FEATURES = new URL("./guest-features.txt", import.meta.url);

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

/** The features of this host that guests of its own CPU see. */
export function guestFeaturesOf({ flags }: HostCpu): string[] {
  const known = readFileSync(GUEST_FEATURES, "utf8").split("\n");
  return known.filter((name) => flags.has(name));
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
