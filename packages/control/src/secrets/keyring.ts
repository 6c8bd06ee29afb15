/** The key-encryption keys that this process has loaded. */
import { ApiError } from "../errors/api-error.ts";
import { addKek, type KekSource, makeKekFile, readKeks } from "./kek-source.ts";
import type { Kek } from "./kek-text.ts";

/** Another process may have added a key; a source is read again no more often than this. */
const RELOAD_PAUSE_MS = 1_000;

export class Keyring {
  readonly #source: KekSource | undefined;
  #keks: readonly Kek[];
  #readAt = performance.now();

  private constructor(source: KekSource | undefined, keks: readonly Kek[]) {
    this.#source = source;
    this.#keks = keks;
  }

  /** A ring without keys: nothing can be sealed. */
  static empty(): Keyring {
    return new Keyring(undefined, []);
  }

  /** `made`: the file was made by this call, which happens only if `mayMake`. */
  static async load(
    source: KekSource | undefined,
    mayMake = true,
  ): Promise<{ keyring: Keyring; made?: string }> {
    if (!source) return { keyring: Keyring.empty() };
    const keks = await readKeks(source);
    if (keks) return { keyring: new Keyring(source, keks) };
    if (!mayMake) return { keyring: new Keyring(source, []) };
    const { file } = source as KekSource & { kind: "file" };
    return { keyring: new Keyring(source, await makeKekFile(file)), made: file };
  }

  /** The key that seals; undefined if this service has none. */
  get current(): Kek | undefined {
    return this.#keks.at(-1);
  }

  get ids(): string[] {
    return this.#keks.map(({ id }) => id);
  }

  /** The key of this id. One that is not loaded may have been added since the source was read. */
  async require(id: string): Promise<Kek> {
    const known = this.#find(id) ?? (await this.#reloadAndFind(id));
    if (known) return known;
    throw new ApiError("unavailable", `the key-encryption key ${id} is not loaded on this server`, {
      retryAfterS: null,
    });
  }

  /** Reads the source again. What cannot be read leaves the ring as it is, and throws. */
  async reload(): Promise<void> {
    if (!this.#source) return;
    this.#readAt = performance.now();
    this.#keks = (await readKeks(this.#source)) ?? this.#keks;
  }

  /** Takes over a key that another process has added to the file. */
  async refresh(): Promise<void> {
    if (this.#source?.kind === "file") await this.reload();
  }

  /** Adds a new key to the file, or takes over what the operator has added. Whether there is a new current key. */
  async rotate(): Promise<boolean> {
    const before = this.current?.id;
    if (this.#source?.kind === "file" && this.#source.mayMake) await addKek(this.#source.file);
    await this.reload();
    return this.current?.id !== before;
  }

  #find(id: string): Kek | undefined {
    return this.#keks.find((kek) => kek.id === id);
  }

  async #reloadAndFind(id: string): Promise<Kek | undefined> {
    if (performance.now() - this.#readAt < RELOAD_PAUSE_MS) return undefined;
    await this.reload();
    return this.#find(id);
  }
}
