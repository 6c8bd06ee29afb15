/** Shows which private addresses sessions may reach, and warns when these are very many. */
import { runHostCommand } from "@vivarium/kit/host-command";
import { type Opening, textOfOpening } from "@vivarium/kit/ipv4-openings";
import { bitsOf } from "@vivarium/kit/ipv4-ranges";
import { messageOf } from "@vivarium/kit/unknown-error";
import { privateOpenOf } from "../supervisor/check-settings.ts";
import { refuseOpenParts, type ServiceSettings } from "../supervisor/own-parts.ts";
import { type Finding, fail, ok, warn } from "./finding.ts";

const NAME = "private addresses";
/** A range with fewer bits has more than 65,536 addresses. */
const WIDE_BITS = 16;

/** Looks at the settings of this environment or, without one, at what a service of this host has opened. */
export async function checkPrivateOpen(settings: ServiceSettings): Promise<Finding> {
  try {
    const wanted = privateOpenOf(settings.childEnv);
    const open = wanted.length > 0 ? wanted : await openedNow();
    // A name may have got another address since the start.
    await refuseOpenParts(open, settings);
    return findingOf(open);
  } catch (error) {
    const cost =
      "viv up does not start; a part of the service that is open already can be reached by sessions";
    return fail(NAME, messageOf(error), cost, "Correct VIV_PRIVATE_OPEN, and start the service again.");
  }
}

export function findingOf(open: Opening[]): Finding {
  if (open.length === 0) return ok(NAME, "none is open to sessions");
  const found = `open to sessions: ${open.map(textOfOpening).join(", ")}`;
  const wide = open.filter(({ range }) => bitsOf(range) < WIDE_BITS);
  if (wide.length === 0) return ok(NAME, found);
  const count = wide.reduce((sum, { range }) => sum + 2 ** (32 - bitsOf(range)), 0);
  return warn(
    NAME,
    found,
    `sessions reach ${count.toLocaleString("en")} private addresses, whatever serves there, now and later`,
    "Name single addresses in VIV_PRIVATE_OPEN.",
  );
}

async function openedNow(): Promise<Opening[]> {
  const { code, stdout } = await runHostCommand("nft", ["list", "set", "inet", "vivarium", "open4"]);
  return code === 0 ? openingsIn(stdout) : [];
}

/** Reads the elements of nft's text for a set, such as `10.1.2.3 . 443` and `10.2.0.0/24 . 8080`. */
export function openingsIn(set: string): Opening[] {
  const elements = set.slice(set.indexOf("elements"));
  return [...elements.matchAll(/(\d+\.\d+\.\d+\.\d+)(\/\d+)? \. (\d+)/g)].map(
    ([, address, bits = "/32", port]) => ({ range: `${address}${bits}`, port: Number(port) }),
  );
}
