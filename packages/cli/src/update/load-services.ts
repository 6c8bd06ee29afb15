/**
 * Loads the modules of node, gateway and control, and keeps their compiled code. An update runs this with the flags of the
 * services before it stops the version of before: one that does not load changes nothing, and the start takes less time.
 */
import path from "node:path";
import { keepCompiledCode } from "@vivarium/kit/compiled-code";

const PACKAGES = path.join(import.meta.dirname, "../../..");

keepCompiledCode();
for (const service of ["node", "gateway", "control"])
  await import(path.join(PACKAGES, service, "src/app.ts"));
