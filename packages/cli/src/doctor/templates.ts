/** Lists the official templates of this host. Those besides base are made only where they are wanted. */
import { existsSync } from "node:fs";
import path from "node:path";
import { makeTemplateCommand, OFFICIAL_TEMPLATES } from "@vivarium/contract/api";
import { type Finding, ok } from "./finding.ts";

/** That base is missing is a finding of its images. */
export function checkTemplates(imagesDir: string): Finding {
  const isHere = (name: string) => existsSync(path.join(imagesDir, "templates", name, "current"));
  const here = OFFICIAL_TEMPLATES.filter(isHere).join(", ") || "none";
  const missing = OFFICIAL_TEMPLATES.filter((name) => name !== "base" && !isHere(name));
  if (missing.length === 0) return ok("templates", here);
  return ok(
    "templates",
    `${here}; not set up: ${missing.join(", ")} (${makeTemplateCommand(missing.join(","))})`,
  );
}
