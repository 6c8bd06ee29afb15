/**
 * A network that replaced the one of the machine's start, in a file of its own beside the journal entry: changes of
 * network and captures need not wait for each other.
 */
import { readFile } from "node:fs/promises";
import path from "node:path";
import { NetworkSpec } from "@vivarium/contract/node";
import { z } from "zod";
import { writeDurably } from "../host/durable-file.ts";
import { machineDir } from "./journal.ts";

const KeptNetwork = z.object({ spec: NetworkSpec, mark: z.int() });
type KeptNetwork = z.infer<typeof KeptNetwork>;

const FILE = "network.json";

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
