/** A process that unpacks an image and can be killed: its input is one line of JSON, and it prints a line for each progress. */
import { text } from "node:stream/consumers";
import { unpackImage } from "../../packages/node/src/builds/unpack-image.ts";
import { openCgroups } from "../../packages/node/src/host/cgroup.ts";

const { deps, layers, folder } = JSON.parse(await text(process.stdin));
await unpackImage(
  { ...deps, cgroups: await openCgroups() },
  { layers, folder, onProgress: ({ bytes }) => process.stdout.write(`${bytes}\n`) },
);
