/** `viv cap`: shows or sets the daily egress cap of a session or of the organisation. */
import { parseCap, parseOrgCap } from "../args/values.ts";
import { UsageError } from "../cli-error.ts";
import { renderCap, renderOrgCap } from "../print/egress.ts";
import { type Call, clientVerb, SESSION_ARGUMENT, type Verb } from "./verb.ts";

interface CapOptions {
  /** `true` for --org without a value: shows the cap, and sets none. */
  org?: number | "default" | true;
}

export function capCommand(): Verb {
  return clientVerb("cap", [
    "viv cap 4x7k2m9q0a1b2c3d4e5f6",
    "viv cap 4x7k2m9q0a1b2c3d4e5f6 10MiB",
    "viv cap 4x7k2m9q0a1b2c3d4e5f6 none",
    "viv cap --org",
    "viv cap --org 100GiB",
  ])
    .summary("show or set how much a session, or the organisation, may send in a day")
    .description(
      `Show how much a session may send in a day (UTC) and how much it has sent, or set the cap. It takes effect within
seconds. A session that has reached its cap stays live and sends nothing until 00:00 UTC or a higher cap. Wakes nothing.

With --org, the same of all sessions of the organisation together: over its cap they are paused, and none is created or
woken, until 00:00 UTC or a higher cap.`,
    )
    .argument("[session]", SESSION_ARGUMENT)
    .argument("[bytes]", "the cap: 10MiB, 1.5GiB, 500MB, bytes, or none", parseCap)
    .option(
      "--org [bytes]",
      "the organisation's cap, instead of a session's; default: the operator's",
      parseOrgCap,
    )
    .option("--json", "print the cap as JSON")
    .does(showCap);
}

async function showCap(call: Call<CapOptions>, reference?: string, bytes?: number): Promise<void> {
  const { org } = call.options;
  if ((reference === undefined) === (org === undefined)) {
    throw new UsageError("give either a session or --org");
  }
  if (reference === undefined) return await showOrgCap(call);
  const { cap } = (await call.find(reference)).session;
  call.print(bytes === undefined ? await cap.get() : await cap.set(bytes), renderCap);
}

async function showOrgCap(call: Call<CapOptions>): Promise<void> {
  const { cap } = (await call.connect()).org;
  const { org } = call.options;
  const isShown = typeof org === "boolean" || org === undefined;
  call.print(isShown ? await cap.get() : await cap.set(org === "default" ? null : org), renderOrgCap);
}
