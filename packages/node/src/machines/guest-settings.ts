/**
 * The operator's settings for guests (`VIV_GUEST_SETTINGS`). The file is looked at for every new session, and read when
 * it has changed. While it is missing or cannot be read, the last good settings stay in force.
 */
import { readFile, stat } from "node:fs/promises";
import { type GuestSettings, NO_GUEST_SETTINGS, parseGuestSettings } from "@vivarium/contract/guest";
import type { Log } from "@vivarium/kit/log";
import { SerialQueue } from "@vivarium/kit/serial-queue";
import { messageOf } from "@vivarium/kit/unknown-error";

export class GuestSettingsFile {
  readonly #path: string | undefined;
  readonly #log: Log;
  #settings = NO_GUEST_SETTINGS;
  /** Identifies the content that was read last, or failed to be. */
  #seen = "";
  /** Sessions that start side by side after a change all wait for it to be read. */
  readonly #reads = new SerialQueue();

  /** Rejects if the file is missing or wrong: a service must not start without the settings that it was given. */
  static async open(path: string | undefined, log: Log): Promise<GuestSettingsFile> {
    const file = new GuestSettingsFile(path, log);
    if (path === undefined) return file;
    try {
      await file.#readIfChanged(path);
    } catch (cause) {
      throw new Error(`VIV_GUEST_SETTINGS: ${path}: ${messageOf(cause)}`, { cause });
    }
    return file;
  }

  private constructor(path: string | undefined, log: Log) {
    this.#path = path;
    this.#log = log;
  }

  async current(): Promise<GuestSettings> {
    if (this.#path !== undefined)
      await this.#readIfChanged(this.#path).catch((error: unknown) =>
        this.#log.error(
          { file: this.#path, why: messageOf(error) },
          "the settings for guests cannot be used; new sessions get the last ones that could",
        ),
      );
    return this.#settings;
  }

  /** The same failure rejects once. */
  async #readIfChanged(path: string): Promise<void> {
    await this.#reads.run(() => this.#read(path));
  }

  async #read(path: string): Promise<void> {
    const facts = await stat(path, { bigint: true }).catch((error: Error) => error);
    const seen =
      facts instanceof Error ? facts.message : `${facts.ino} ${facts.size} ${facts.mtimeNs} ${facts.ctimeNs}`;
    if (seen === this.#seen) return;
    this.#seen = seen;
    if (facts instanceof Error) throw facts;
    this.#settings = parseGuestSettings(await readFile(path, "utf8"));
  }
}
