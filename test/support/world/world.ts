/**
 * The rest of the internet, in a network namespace: name servers, web servers, mail, metadata services, private hosts.
 * Tests set its DNS answers and read its log of everything that arrived, which does not depend on the service.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { sleep } from "@vivarium/kit/clock";
import { eventually } from "../eventually.ts";
import { makeCertificates } from "./certificates.ts";
import type { OpenConnection, WorldEvent } from "./events.ts";
import { createWorldNamespace, type WorldNamespace } from "./namespace.ts";
import type { Zone } from "./zone.ts";

const QUIET_WITHIN_MS = 3_000;
const INSIDE = fileURLToPath(new URL("./inside.ts", import.meta.url));

export class World {
  /** The namespace with its packet counters, for traffic that no server reports. */
  readonly namespace: WorldNamespace;
  /** The authority that signed the world's certificates, as PEM. */
  readonly ca: string;
  readonly #folder: string;
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (result: unknown) => void>();
  #lastId = 0;

  constructor(init: { namespace: WorldNamespace; child: ChildProcess; folder: string; ca: string }) {
    this.namespace = init.namespace;
    this.ca = init.ca;
    this.#folder = init.folder;
    this.#child = init.child;
    createInterface({ input: init.child.stdout as NodeJS.ReadableStream }).on("line", (line) => {
      const { id, result } = JSON.parse(line);
      this.#waiting.get(id)?.(result);
      this.#waiting.delete(id);
    });
  }

  /** Resolves once all servers listen. */
  ready(): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#waiting.set(0, resolve);
      this.#child.once("exit", (code) => reject(new Error(`the world ended with code ${code}`)));
    });
  }

  /** Replaces all answers of the name servers. */
  say(zone: Zone): Promise<unknown> {
    return this.#call("zone", zone);
  }

  /** Takes the events since the last call from the log. */
  take(): Promise<WorldEvent[]> {
    return this.#call("take") as Promise<WorldEvent[]>;
  }

  open(): Promise<OpenConnection[]> {
    return this.#call("open") as Promise<OpenConnection[]>;
  }

  /**
   * Waits until every connection has ended and its last packets have arrived, before a test counts packets; at most 3
   * s, since a connection may stay open.
   */
  async untilQuiet(): Promise<void> {
    await eventually(
      async () => {
        const before = this.namespace.counted();
        const open = await this.open();
        if (open.length > 0) throw new Error(`${open.length} connections are open`);
        await sleep(20);
        if (!isDeepStrictEqual(this.namespace.counted(), before)) throw new Error("packets still come");
      },
      QUIET_WITHIN_MS,
      50,
    ).catch(() => {});
  }

  /**
   * Closes all open connections. Otherwise the world would retransmit flows that were cut for many seconds, and once
   * their machine is gone this host would answer for it.
   */
  async hangUp(): Promise<void> {
    await this.#call("hangUp");
  }

  /** Clears the log and the counters. */
  async forget(): Promise<void> {
    this.namespace.reset();
    await this.take();
  }

  /** Directory whose files the web servers serve under a name. */
  folderOf(name: string): string {
    const folder = join(this.#folder, "site", name);
    mkdirSync(folder, { recursive: true });
    return folder;
  }

  async close(): Promise<void> {
    const ended = this.#child.exitCode === null ? once(this.#child, "exit") : undefined;
    this.#child.stdin?.end();
    await ended;
    await this.namespace.remove();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #call(op: string, argument?: unknown): Promise<unknown> {
    const id = ++this.#lastId;
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.#child.stdin?.write(`${JSON.stringify({ id, op, argument })}\n`);
    });
  }
}

/** Starts a world, linked to this host or in a namespace that the test makes. */
export async function startWorld(makeNamespace = createWorldNamespace): Promise<World> {
  const folder = mkdtempSync(join(tmpdir(), "viv-world-"));
  const { caFile, certFile, keyFile } = makeCertificates(folder);
  const namespace = makeNamespace();
  const argv = [process.execPath, "--no-warnings", INSIDE, certFile, keyFile, join(folder, "site")];
  const child = spawn("nsenter", [`--net=/run/netns/${namespace.name}`, ...argv], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const world = new World({ namespace, child, folder, ca: readFileSync(caFile, "utf8") });
  try {
    await world.ready();
    return world;
  } catch (error) {
    await world.close();
    throw error;
  }
}
