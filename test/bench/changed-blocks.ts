/** Writes the blocks of files that differ from those of the same names in a base, one after the other. */
import { open } from "node:fs/promises";
import { ifThere } from "@vivarium/kit/if-there";
import { WINDOW_BYTES } from "../../packages/archive/src/pack.ts";
import {
  openRegular,
  rangesToRead,
  readWindow,
  windowsToRead,
} from "../../packages/archive/src/read-window.ts";

export async function writeChangedBlocks(
  { dir, files }: { dir: string; files: readonly string[] },
  baseDir: string,
  target: string,
): Promise<void> {
  await using out = await open(target, "wx");
  for (const name of files) {
    const own = await openRegular(dir, name);
    const base = await ifThere(openRegular(baseDir, name));
    await using _own = own.handle;
    await using _base = base?.handle;
    for (const wanted of windowsToRead(await rangesToRead(own, base), WINDOW_BYTES)) {
      const found = await readWindow({ own, base, windowBytes: WINDOW_BYTES }, wanted);
      if (found) await out.write(found.content);
    }
  }
}
