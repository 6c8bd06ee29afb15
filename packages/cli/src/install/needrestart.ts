/**
 * The configuration of needrestart, which on Debian and Ubuntu restarts the services that use a library which was updated. The
 * processes of the machines' unit are the machines: its restart would end every session. The service itself may be
 * restarted, and machines run on.
 */
import { existsSync } from "node:fs";
import { mkdir, rm, rmdir } from "node:fs/promises";
import path from "node:path";
import { MACHINES_UNIT } from "@vivarium/contract/node";
import { writeDurably } from "@vivarium/kit/durable-file";

const FILE = "/etc/needrestart/conf.d/vivarium.conf";

/** In the language of needrestart, which is Perl. */
export const NEEDRESTART_TEXT = `# Written by \`viv install\`, removed by \`viv uninstall\`: a restart of this unit would end all machines.
$nrconf{override_rc}{qr(^${MACHINES_UNIT.replaceAll(".", "\\.")}$)} = 0;
`;

/** Written also where needrestart is not installed: it may be later. */
export async function writeNeedrestart(file = FILE): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true });
  await writeDurably(file, NEEDRESTART_TEXT, 0o644);
}

/** With the directories that were made for it. */
export async function removeNeedrestart(file = FILE): Promise<void> {
  await rm(file, { force: true });
  for (const dir of [path.dirname(file), path.dirname(path.dirname(file))]) await rmdir(dir).catch(() => {});
}

export const hasNeedrestart = (file = FILE) => existsSync(file);
