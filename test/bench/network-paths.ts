/** The same orders over several ways to the outside, alternating, and the rows computed from them. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { captureHello } from "../../packages/gateway/test-support/hello.ts";
import { PUBLIC } from "../support/world/addresses.ts";
import { percentile, type Row, row } from "./samples.ts";

const MIB = 2 ** 20;
/** Names allowed by the policies of the rows. */
export const ALLOWED_NAMES = ["example.com", "*.example.com"];
export const DENY = { mode: "deny" as const, allow: ALLOWED_NAMES };
const NAME = "www.example.com";

export interface PathEffort {
  rounds: number;
  connections: number;
  mib: number;
}

/** A guest, or a namespace in its place. */
export interface NetworkPath {
  /** The way between the client and the outside. */
  name: string;
  /** Runs the client program there with these arguments; its standard output. */
  run(argv: string[]): Promise<string>;
}

interface Measure {
  what: string;
  unit: "ms" | "MiB/s";
  order: object;
}

const CLIENT = readFileSync(fileURLToPath(new URL("./network-client.py", import.meta.url)), "utf8");

/** The first path is the floor of the others. `where` begins the rows' names. */
export async function pathRows(where: string, paths: NetworkPath[], effort: PathEffort): Promise<Row[]> {
  const samples = new Map<NetworkPath, number[][]>();
  // Alternating, so that a noisy minute of the host affects all paths alike. The first round warms up.
  for (let i = 0; i <= effort.rounds; i++) {
    const measures = await measuresOf(effort, `r${i}x`);
    for (const path of paths) {
      const orders = JSON.stringify(measures.map(({ order }) => order));
      const taken: number[][] = JSON.parse(await path.run(["python3", "-c", CLIENT, orders]));
      if (i > 0) samples.set(path, addTo(samples.get(path), taken));
    }
  }
  return rowsOf(where, paths, await measuresOf(effort, ""), samples);
}

function addTo(before: number[][] | undefined, taken: number[][]): number[][] {
  return taken.map((values, at) => [...(before?.[at] ?? []), ...values]);
}

/** `salt` makes names unique, so that no cache has them. */
async function measuresOf(effort: PathEffort, salt: string): Promise<Measure[]> {
  const hello = (await captureHello({ servername: NAME })).toString("hex");
  const tls = { host: PUBLIC.allowed, port: 443, hello };
  const http = { host: PUBLIC.allowed, port: 80, name: NAME };
  const names = { op: "dns", host: PUBLIC.resolver, port: 53, n: effort.connections };
  const bytes = effort.mib * MIB;
  return [
    { what: "new connection, HTTP, to its first byte", unit: "ms", order: connections(http, effort) },
    { what: "new connection, TLS greeting, to its first byte", unit: "ms", order: connections(tls, effort) },
    { what: "DNS, a name asked for before", unit: "ms", order: { ...names, name: NAME } },
    { what: "DNS, a new name", unit: "ms", order: { ...names, name: "*.example.com", salt } },
    { what: "out over 443", unit: "MiB/s", order: { ...tls, op: "upload", bytes } },
    { what: "in over 443", unit: "MiB/s", order: { ...tls, op: "download", bytes } },
    { what: "out over 80", unit: "MiB/s", order: { ...http, op: "post", bytes } },
  ];
}

const connections = (to: object, effort: PathEffort) => ({ ...to, op: "connection", n: effort.connections });

function rowsOf(
  where: string,
  paths: NetworkPath[],
  measures: Measure[],
  samples: Map<NetworkPath, number[][]>,
): Row[] {
  return measures.flatMap(({ what, unit, order }, at) => {
    const valuesOf = (path: NetworkPath) => {
      const ms = samples.get(path)?.[at] ?? [];
      const { bytes = 0 } = order as { bytes?: number };
      return unit === "ms" ? ms : ms.map((each) => (bytes / MIB / each) * 1000);
    };
    const [floor] = paths as [NetworkPath];
    const over = (values: number[]) =>
      `${(percentile(values, 50) / percentile(valuesOf(floor), 50)).toFixed(2)} × ${floor.name}`;
    return paths.map((path) => {
      const values = valuesOf(path);
      return row(`${where}${what}: ${path.name}`, unit, values, path === floor ? undefined : over(values));
    });
  });
}
