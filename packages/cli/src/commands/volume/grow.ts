/** `viv volume grow`: makes a volume larger. */
import { parseGb } from "../../args/values.ts";
import { renderVolume } from "../../print/volume.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function volumeGrowCommand(): Verb {
  return clientVerb("grow", ["viv volume grow vol_4x7k2m9q0a1b2c3d4e5f6 8"])
    .summary("make a volume larger")
    .description("Make a volume larger, from its next session on. A volume that a session has does not grow.")
    .argument("<volume>", "id of the volume")
    .argument("<gb>", "its new size in GB, more than it has", parseGb)
    .option("--json", "print the volume as JSON")
    .does(growVolume);
}

async function growVolume(call: Call, id: string, sizeGb: number): Promise<void> {
  const { volumes } = await call.connect();
  call.print(await volumes.grow(id, sizeGb), renderVolume, (volume) => volume.id);
}
