/**
 * A process that does one step of the daemon's work on a build or a volume, and dies at a crash point. Its argument says which, as
 * JSON. It writes the builds that it found at its start, and ends with code 1 if it did not die.
 */
import { once } from "node:events";
import { connect } from "node:net";
import { sleep } from "@vivarium/kit/clock";
import { armCrashPoint } from "@vivarium/kit/crash-point";
import { createLog } from "@vivarium/kit/log";
import { Builds } from "../src/builds/builds.ts";
import type { BuildDeps } from "../src/builds/deps.ts";
import { offerImage, releaseVolume } from "../src/volumes/holders.ts";
import { prepareVolumes } from "../src/volumes/images.ts";
import { Volumes } from "../src/volumes/volumes.ts";

type Step =
  /** `port`: of a server on this host to which every registry leads. */
  | { do: "build"; id: string; reference: string; port: number }
  | { do: "remove build"; id: string }
  | { do: "make"; id: string; sizeGb: number }
  | { do: "attach"; id: string; sizeGb: number; machineId: string; target: string; uid: number }
  | { do: "detach"; id: string; machineId: string }
  | { do: "remove"; id: string };

export interface Work {
  dataDir: string;
  crashAt: string;
  step: Step;
}

const { dataDir, crashAt, step } = JSON.parse(process.argv[2] ?? "") as Work;
armCrashPoint(crashAt, dataDir);
const gate = { reserve: async () => () => {} };
if (step.do === "build" || step.do === "remove build") await onBuilds(step);
else await onVolumes(step);
process.exit(1);

async function onBuilds(wanted: Extract<Step, { do: "build" | "remove build" }>): Promise<void> {
  const builds = await Builds.open({
    ...{ config: { dataDir }, gate, log: createLog("test", "silent"), giveUpOne: async () => false },
    dial: async (_host: string, _port: number, signal: AbortSignal) => {
      const socket = connect(wanted.do === "build" ? wanted.port : 0, "127.0.0.1");
      await once(socket, "connect", { signal });
      return socket;
    },
  } as unknown as BuildDeps);
  process.stdout.write(JSON.stringify(builds.list()));
  if (wanted.do === "remove build") return await builds.remove(wanted.id);
  await builds.put(wanted.id, { reference: wanted.reference, sizes: ["small"] });
  while (builds.find(wanted.id).state !== "failed") await sleep(50);
}

async function onVolumes(wanted: Exclude<Step, { do: "build" | "remove build" }>): Promise<void> {
  await prepareVolumes(dataDir);
  const volumes = new Volumes({ dataDir, gate });
  const { id } = wanted;
  if (wanted.do === "make") await volumes.put(id, wanted.sizeGb);
  else if (wanted.do === "remove") await volumes.remove(id);
  else if (wanted.do === "detach") await releaseVolume(dataDir, id, wanted.machineId);
  else {
    await volumes.hold(id, wanted.sizeGb, wanted.machineId);
    await offerImage(dataDir, id, wanted);
  }
}
