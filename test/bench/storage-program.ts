/** Measures imports and archives in the network that this process is in, and writes the rows into a file as JSON. */
import { writeFile } from "node:fs/promises";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { raiseCeiling } from "../support/database.ts";
import { startRegistries } from "../support/registries.ts";
import { IMAGES, startService } from "../support/service.ts";
import { archiveRows } from "./archive-rows.ts";
import { makeBigImage } from "./big-image.ts";
import { importRows } from "./import-rows.ts";
import { findBaseline } from "./machine-rows.ts";
import type { Row } from "./samples.ts";
import type { StorageWork } from "./storage-rows.ts";

const REPOSITORY = "team/bench";

async function rowsOf({ image, archive, tools }: StorageWork): Promise<Row[]> {
  const undo = new UndoStack();
  try {
    const registries = await startRegistries({ [REPOSITORY]: makeBigImage(image.mib) });
    undo.push("registries", () => registries.close());
    const env = { ...registries.env, VIV_ARCHIVES: "1", VIV_ARCHIVE_NICENESS: "0" };
    const { facts, stop } = await startService({ env });
    undo.push("service", stop);
    await raiseCeiling(facts, 50);
    const imported = {
      image: `${registries.open}/${REPOSITORY}:1`,
      trusted: registries.env.NODE_EXTRA_CA_CERTS as string,
      tools,
    };
    const baseline = await findBaseline(facts, IMAGES);
    return [...(await importRows(facts, imported, image)), ...(await archiveRows(facts, baseline, archive))];
  } finally {
    await undo.unwind();
  }
}

const [out = "", work = ""] = process.argv.slice(2);
await writeFile(out, JSON.stringify(await rowsOf(JSON.parse(work))));
