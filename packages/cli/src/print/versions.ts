/** Renders what `viv version` found. */
import type { InstalledCopy, Versions } from "../service/versions.ts";

export function renderVersions(versions: Versions): string {
  const { viv, service, data_dir: dataDir, unit, parts = {} } = versions;
  const rows: [string, string | undefined][] = [
    ["viv", viv],
    ["service", service ? `${service.url}, ${service.isolation}` : "none answers"],
    ["data", dataDir],
    ["unit", unit && `${unit.name}.service`],
    ["copy", placeOf(unit?.copy)],
    ["previous", placeOf(unit?.previous)],
    ...Object.entries(parts).map(([name, part]): [string, string] => [
      name,
      `${part.version}, pid ${part.pid}, since ${part.since}`,
    ]),
    ...(service && parts.control === undefined ? [["control", service.version] as [string, string]] : []),
    ["schema", String(versions.schema)],
    ["agent", `generation ${versions.agent_generation}`],
    ["QEMU", versions.qemu],
    ["kernel", versions.guest_kernel],
    ...(versions.templates ?? []).map(({ name, version, sizes }): [string, string] => [
      "template",
      `${name}@${version} (${sizes.join(", ")})`,
    ]),
  ];
  const known = rows.filter((row): row is [string, string] => row[1] !== undefined);
  const width = Math.max(...known.map(([name]) => name.length));
  const lines = known.map(([name, value]) => `${name.padEnd(width)}  ${value}`);
  return [...lines, ...remarks(versions)].join("\n");
}

const placeOf = (copy: InstalledCopy | undefined) => copy && `${copy.version}, ${copy.path}`;

/** Lines about what does not run the version that it should: the copy of its unit, else this checkout. */
function remarks({ viv, unit, parts = {} }: Versions): string[] {
  const wanted = unit?.copy?.version ?? viv;
  const others = Object.entries(parts)
    .filter(([name, { version }]) => name !== "postgres" && version !== wanted)
    .map(([name]) => name);
  const where = unit?.copy ? "the copy of its unit" : "this viv";
  const lines = [
    ...(unit?.unfinished_update === undefined
      ? []
      : [`An update to ${unit.unfinished_update} is not finished: viv install ends it.`]),
    ...(others.length === 0
      ? []
      : [
          `Of another version than ${where}: ${others.join(", ")}. A restart of the service brings them to it.`,
        ]),
    ...(wanted === viv
      ? []
      : [`This viv is of another version than the service: sudo viv install updates it.`]),
  ];
  return lines.length === 0 ? [] : ["", ...lines];
}
