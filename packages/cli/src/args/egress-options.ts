/** Network options of a new machine: its egress policy and its daily cap. */
import type { EgressPolicy, SessionCreate } from "@vivarium/sdk";
import { type Command, Option } from "commander";
import { collectList, parseCap } from "./values.ts";

export const EGRESS_MODES = ["allow", "deny"] as const satisfies readonly EgressPolicy["mode"][];

export interface EgressOptions {
  egress?: EgressPolicy["mode"];
  allow?: string[];
  egressCap?: number;
}

export function addEgressOptions<Verb extends Command>(command: Verb): Verb {
  return command
    .addOption(
      new Option(
        "--egress <mode>",
        "allow: it reaches the whole internet (the default); deny: only what --allow names",
      ).choices(EGRESS_MODES),
    )
    .option(
      "--allow <a,b>",
      "host, *.host or IPv4, each with or without :port; repeatable; --egress is deny unless told",
      collectList,
    )
    .option("--egress-cap <bytes>", "what it may send in a day: 10MiB, 1.5GiB, bytes, or none", parseCap);
}

export function toEgressFields({ egress, allow, egressCap }: EgressOptions) {
  // A list in mode allow would restrict nothing, so --allow alone means mode deny.
  const mode = egress ?? (allow && "deny");
  return {
    egress: mode && { mode, ...(allow && { allow }) },
    egress_cap_bytes: egressCap,
  } satisfies SessionCreate;
}

export function hasEgressOptions({ egress, allow, egressCap }: EgressOptions): boolean {
  return egress !== undefined || allow !== undefined || egressCap !== undefined;
}
