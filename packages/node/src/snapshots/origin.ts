/** The origin of a template version, as set-up wrote it beside the disk. */
import { readFile } from "node:fs/promises";
import path from "node:path";
import { TemplateOrigin } from "@vivarium/contract/api";
import { z } from "zod";

const Description = TemplateOrigin.extend({
  built_at: z.iso
    .datetime()
    .transform((at) => new Date(at).toISOString())
    .optional(),
});

/** Absent fields stay absent, and so does an unreadable file: a template can be used without an origin. */
export async function readOrigin(versionDir: string): Promise<TemplateOrigin> {
  const text = await readFile(path.join(versionDir, "template.json"), "utf8").catch(() => "{}");
  return Description.parse(JSON.parse(text));
}
