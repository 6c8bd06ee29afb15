/** `viv volume create`: makes a volume. */
import { parseGb } from "../../args/values.ts";
import { renderVolume } from "../../print/volume.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function volumeCreateCommand(): Verb {
  return clientVerb("create", [
    "viv volume create --size 5",
    "viv create --volume $(viv volume create) --wait",
  ])
    .summary("make an empty volume")
    .description("Make an empty volume. Prints its id.")
    .option("--size <gb>", "its size in GB (default: as the operator set it, usually 1)", parseGb)
    .option("--json", "print the volume as JSON")
    .does(createVolume);
}

async function createVolume(call: Call<{ size?: number }>): Promise<void> {
  const { volumes } = await call.connect();
  const volume = await volumes.create({ size_gb: call.options.size });
  call.print(volume, renderVolume, ({ id }) => id);
}
