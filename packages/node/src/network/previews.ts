/**
 * Keeps the routes of this node's previews, as control last sent them, in memory and on disk. A restarted node sends
 * its gateway the same routes at once, so that visitors keep their open connections.
 */
import { readFile } from "node:fs/promises";
import path from "node:path";
import { isDeepStrictEqual } from "node:util";
import { PreviewTable } from "@vivarium/contract/node";
import { writeDurably } from "@vivarium/kit/durable-file";
import type { Log } from "@vivarium/kit/log";
import { SerialQueue } from "@vivarium/kit/serial-queue";
import { NodeError } from "../node-error.ts";
import type { GatewayLink } from "./gateway-link.ts";

const CONFIRM_MS = 5_000;
/** Version of the gateway's first tables, which contain the routes that were kept. */
const FIRST = 1;

export interface PreviewsInit {
  /** The routes that an earlier process kept. */
  table?: PreviewTable | undefined;
  /** Writes the table, which is durable when this returns. */
  keep?: (table: PreviewTable) => Promise<void>;
}

export class Previews {
  readonly #keep: (table: PreviewTable) => Promise<void>;
  #table: PreviewTable;
  /** First version of the gateway's tables with these routes. */
  #published = FIRST;
  #keptVersion: number;
  readonly #writes = new SerialQueue();

  constructor({ table = { version: 0, routes: [] }, keep = async () => {} }: PreviewsInit = {}) {
    this.#table = table;
    this.#keptVersion = table.version;
    this.#keep = keep;
  }

  get version(): number {
    return this.#table.version;
  }

  get routes() {
    return this.#table.routes;
  }

  /** Replaces the routes, which are on disk and in force at the gateway when this returns. May be repeated. */
  async replace(link: GatewayLink, table: PreviewTable): Promise<void> {
    this.#refuseOlder(table);
    if (table.version > this.version) {
      this.#table = table;
      this.#published = link.publish();
    }
    // In parallel: a removed route is closed at the gateway even if the disk is full.
    const [isConfirmed] = await Promise.all([
      link.confirmed(this.#published, CONFIRM_MS),
      this.#keepOnce(table.version),
    ]);
    if (isConfirmed) return;
    throw new NodeError(
      "network_unconfirmed",
      "the gateway did not confirm the previews in time; they are kept",
    );
  }

  /** Refuses an older version, and the same version with other routes, as after a restore of control's database. */
  #refuseOlder({ version, routes }: PreviewTable): void {
    if (version > this.version) return;
    if (version === this.version && isDeepStrictEqual(routes, this.routes)) return;
    throw new NodeError(
      "network_conflict",
      version < this.version
        ? `previews of version ${version} came after ${this.version}`
        : `previews of version ${version} came a second time with other routes; expected a later version`,
    );
  }

  /** Writes one table at a time, always the newest, so that an older one never overwrites it. */
  #keepOnce(version: number): Promise<void> {
    return this.#writes.run(async () => {
      if (this.#keptVersion >= version) return;
      const table = this.#table;
      await this.#keep(table);
      this.#keptVersion = table.version;
    });
  }
}

export const previewsFile = (dataDir: string) => path.join(dataDir, "previews.json");

/** Writes the table durably. One call at a time. The file holds keys of cookies, so only root may read it. */
export async function writePreviews(dataDir: string, table: PreviewTable): Promise<void> {
  await writeDurably(previewsFile(dataDir), JSON.stringify(table), 0o600);
}

/** Reads the table. Without a readable file there are no routes until control sends some. */
export async function readPreviews(
  { log }: { log: Log },
  dataDir: string,
): Promise<PreviewTable | undefined> {
  const file = previewsFile(dataDir);
  try {
    return PreviewTable.parse(JSON.parse(await readFile(file, "utf8")));
  } catch (err) {
    // The file is made when the first port is exposed.
    if ((err as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    log.warn({ err, file }, "no routes of previews could be read; there are none until control sends them");
    return undefined;
  }
}
