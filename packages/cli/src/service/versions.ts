/** Finds out which versions run: of the processes of this host's service, and of what its machines are made of. */
import path from "node:path";
import { GENERATION } from "@vivarium/contract/guest";
import type { NodeInfo } from "@vivarium/contract/node";
import type { Health } from "@vivarium/sdk";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import { connectWithoutKey } from "../connect.ts";
import { isSameDir } from "../install/directories.ts";
import { listInstalled } from "../install/installed.ts";
import { readBuild } from "../supervisor/build.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { findService } from "../supervisor/lock.ts";
import { type Parts, readParts } from "../supervisor/parts-record.ts";
import { copiesDirOf, listCopies } from "../update/copies.ts";
import { journalFileOf, readJournal } from "../update/journal.ts";
import { askNode } from "./ask-node.ts";
import { readKernelRelease } from "./kernel-release.ts";
import { askHealth } from "./wait-for-health.ts";

export interface InstalledCopy {
  path: string;
  version: string;
}

export interface Versions {
  viv: string;
  /** The service that answers; absent if none does. */
  service?: { url: string; version: string; isolation: Health["isolation"] };
  /** Where the service of this host keeps its data; absent for one elsewhere. */
  data_dir?: string;
  /** The unit of this host that has the data directory, and the copy that it runs; `previous` is kept to go back to. */
  unit?: { name: string; copy?: InstalledCopy; previous?: InstalledCopy; unfinished_update?: string };
  /** Processes of the service of this host. */
  parts?: Parts;
  /** Number of the schema that this viv's control plane brings a database to. */
  schema: number;
  /** Version of the protocol between node and agent. */
  agent_generation: number;
  qemu?: string;
  guest_kernel?: string;
  templates?: { name: string; version: string; sizes: string[] }[];
}

export async function readVersions(config: CliConfig): Promise<Versions> {
  const layout = layoutOf(config.dataDir, config.imagesDir);
  const [build, holder] = await Promise.all([readBuild(), findService(layout.lockFile)]);
  const url = holder?.url ?? config.url;
  const health = await askHealth(connectWithoutKey({ ...config, url }));
  const own = { viv: build.version, schema: build.schema, agent_generation: GENERATION };
  const service = health && { url, version: health.version, isolation: health.isolation };
  const unit = await readUnitVersions(config.dataDir);
  if (!holder) return { ...own, ...(service && { service }), ...(unit && { unit }) };
  const [parts, node, kernel] = await Promise.all([
    readParts(layout.partsFile),
    askNode(config.childEnv.VIV_NODE_SOCKET || layout.nodeSocket),
    readKernelRelease(path.join(layout.imagesDir, "kernel", "vmlinuz")),
  ]);
  return {
    ...own,
    ...(service && { service }),
    data_dir: config.dataDir,
    ...(unit && { unit }),
    parts,
    ...(node && { qemu: node.qemu_version, templates: templatesOf(node.baselines) }),
    ...(kernel !== undefined && { guest_kernel: kernel }),
  };
}

async function readUnitVersions(dataDir: string): Promise<Versions["unit"]> {
  const installed = (await listInstalled()).find((one) => isSameDir(one.dataDir, dataDir));
  if (!installed) return undefined;
  const { name, copy: current } = installed;
  const copies = await listCopies(copiesDirOf(name));
  const [copy, previous] = [
    copies.find((one) => one.path === current),
    copies.findLast((one) => one.path !== current),
  ].map((one) => one && { path: one.path, version: one.version });
  // Root alone can read it. A damaged one says less, and `viv install` says what to do.
  const journal = await readJournal(journalFileOf(copiesDirOf(name))).catch((error: unknown) => {
    if (error instanceof CliError) return { after: { version: "a version that its damaged journal hides" } };
    throw error;
  });
  return {
    name,
    ...(copy && { copy }),
    ...(previous && { previous }),
    ...(journal && { unfinished_update: journal.after.version }),
  };
}

/** The current version of each template, with its sizes. */
function templatesOf(baselines: NodeInfo["baselines"]): Versions["templates"] {
  const current = baselines.filter(({ is_current: isCurrent }) => isCurrent !== false);
  const byName = Map.groupBy(current, ({ template, version: of = "" }) => `${template}@${of}`);
  return [...byName.values()].flatMap(([first, ...rest]) => {
    if (!first) return [];
    const sizes = [first, ...rest].map(({ size }) => size);
    return { name: first.template, version: first.version ?? "", sizes };
  });
}
