/**
 * Checks the operator's settings that have a grammar of their own before any process of the service starts. The error is
 * then the answer of `viv up`, and not a line in a log.
 */
import { readFile } from "node:fs/promises";
import path from "node:path";
import { OPENING_RULES } from "@vivarium/contract/gateway";
import { parseGuestSettings } from "@vivarium/contract/guest";
import { ipv4AddressesOfHost } from "@vivarium/kit/host-addresses";
import { type Opening, readOpenings, withoutOwn } from "@vivarium/kit/ipv4-openings";
import { readRanges } from "@vivarium/kit/ipv4-ranges";
import { messageOf } from "@vivarium/kit/unknown-error";
import { readS3Settings } from "@vivarium/objects/s3-settings";
import { CliError } from "../cli-error.ts";
import { refuseOpenParts, type ServiceSettings } from "./own-parts.ts";

export async function checkSettings(settings: ServiceSettings): Promise<void> {
  const { childEnv } = settings;
  const open = orCliError(() => privateOpenOf(childEnv));
  orCliError(() => readS3Settings(childEnv));
  await refuseOpenParts(open, settings);
  await checkGuestSettings(childEnv.VIV_GUEST_SETTINGS);
}

/** The private addresses that sessions may reach, without those of this host. */
export function privateOpenOf(childEnv: Record<string, string>): Opening[] {
  const never = readRanges("VIV_NEVER_RANGES", childEnv.VIV_NEVER_RANGES ?? "");
  const rules = { ...OPENING_RULES, closed: [...OPENING_RULES.closed, ...never] };
  const open = readOpenings("VIV_PRIVATE_OPEN", childEnv.VIV_PRIVATE_OPEN ?? "", rules);
  return withoutOwn("VIV_PRIVATE_OPEN", open, ipv4AddressesOfHost());
}

function orCliError<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new CliError(messageOf(cause), { cause });
  }
}

async function checkGuestSettings(file: string | undefined): Promise<void> {
  if (!file) return;
  if (!path.isAbsolute(file))
    throw new CliError(
      `VIV_GUEST_SETTINGS is "${file}"; expected an absolute path, such as /etc/vivarium/guest.json`,
    );
  try {
    parseGuestSettings(await readFile(file, "utf8"));
  } catch (cause) {
    throw new CliError(`VIV_GUEST_SETTINGS: ${file}: ${messageOf(cause)}`, {
      hint: "docs/operate/on-premises.md shows such a file.",
      cause,
    });
  }
}
