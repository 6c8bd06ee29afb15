/**
 * Stores a machine's network policy, if it changed since the start, and its pins beside its journal entry. They have
 * files of their own, so that changes of network and captures do not wait for each other. Pins are for a daemon that
 * restarts under running machines: they are not synced, and an unreadable file counts as empty.
 */
import { readFile, rename, writeFile } from "node:fs/promises";
import path from "node:path";
import { NetworkSpec } from "@vivarium/contract/node";
import { writeDurably } from "@vivarium/kit/durable-file";
import { z } from "zod";
import { machineDir } from "./journal.ts";

const KeptNetwork = z.object({ spec: NetworkSpec, mark: z.int() });
type KeptNetwork = z.infer<typeof KeptNetwork>;

const KeptPins = z.array(
  z.object({ host: z.string(), address: z.ipv4(), port: z.int().min(1).max(65_535), until: z.number() }),
);
type KeptPins = z.infer<typeof KeptPins>;

const FILE = "network.json";
const PINS_FILE = "pins.json";

export async function writePins(dataDir: string, machineId: string, pins: KeptPins): Promise<void> {
  const file = path.join(machineDir(dataDir, machineId), PINS_FILE);
  await writeFile(`${file}.tmp`, JSON.stringify(pins), { mode: 0o600 });
  await rename(`${file}.tmp`, file);
}

export async function readPins(dataDir: string, machineId: string): Promise<KeptPins> {
  const file = path.join(machineDir(dataDir, machineId), PINS_FILE);
  try {
    return KeptPins.parse(JSON.parse(await readFile(file, "utf8")));
  } catch {
    return [];
  }
}

export async function writeNetwork(dataDir: string, machineId: string, kept: KeptNetwork): Promise<void> {
  await writeDurably(path.join(machineDir(dataDir, machineId), FILE), JSON.stringify(kept), 0o600);
}

export async function readNetwork(dataDir: string, machineId: string): Promise<KeptNetwork | undefined> {
  const text = await readFile(path.join(machineDir(dataDir, machineId), FILE), "utf8").catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return undefined;
      throw error;
    },
  );
  return text === undefined ? undefined : KeptNetwork.parse(JSON.parse(text));
}
